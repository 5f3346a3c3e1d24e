package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSystemdIsNotified starts the command with the environment of a service of systemd of the type notify.
func TestSystemdIsNotified(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	next := func() string {
		t.Helper()
		if err := l.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 4096)
		n, err := l.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
	awaits := func(want string) {
		t.Helper()
		for {
			got := next()
			if strings.HasPrefix(got, want) {
				return
			}
			if got != "WATCHDOG=1" {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	}
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte("one,one,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := command("serve", "--storage=memory", "--data-dir="+filepath.Join(dir, "data"), "--secure-port=0",
		"--token-auth-file="+tokens, "--shutdown-delay-duration=1h")
	c.Env = append(c.Env, "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=20000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() }) // long gone if the test went well
	awaits("READY=1")
	for next() != "WATCHDOG=1" {
	}
	signal := func(s os.Signal) {
		t.Helper()
		if err := c.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGHUP)
	awaits("RELOADING=1\nMONOTONIC_USEC=")
	awaits("READY=1")
	signal(syscall.SIGTERM)
	awaits("STOPPING=1")
	// After the first signal the server would wait for an hour. The second signal ends it at once.
	signal(syscall.SIGTERM)
	if err := c.Wait(); err == nil {
		t.Error("the second signal ended the process in order")
	}
}
