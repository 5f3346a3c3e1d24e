// The program of the container that holds the namespaces of a pod: it waits for a signal, and reaps processes whose
// parents have ended.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) {
	(void)signal;
	_exit(0);
}

static void reap(int signal) {
	(void)signal;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

int main(void) {
	struct sigaction ending = {.sa_handler = end};
	struct sigaction reaping = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
	sigaction(SIGINT, &ending, NULL);
	sigaction(SIGTERM, &ending, NULL);
	sigaction(SIGCHLD, &reaping, NULL);
	for (;;)
		pause();
}
