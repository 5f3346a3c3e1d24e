package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// notifier sends the state of the process to systemd, by the protocol of sd_notify(3). A nil notifier sends nothing.
type notifier struct {
	conn  net.Conn
	alive time.Duration // interval in which systemd expects a message; 0: none
}

// newNotifier connects to the socket that systemd names in the environment. It returns nil if systemd names none.
func newNotifier(env func(string) string) (*notifier, error) {
	path := env("NOTIFY_SOCKET")
	if path == "" {
		return nil, nil
	}
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	n := &notifier{conn: conn}
	if pid := env("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if limit, err := strconv.Atoi(env("WATCHDOG_USEC")); err == nil && limit > 0 {
			n.alive = time.Duration(limit) * time.Microsecond / 2
		}
	}
	return n, nil
}

// send sends a state. It ignores errors, because a server goes on without systemd.
func (n *notifier) send(state string) {
	if n != nil {
		_, _ = n.conn.Write([]byte(state))
	}
}

// watchdog returns a ticker for the messages that systemd expects.
func (n *notifier) watchdog() *time.Ticker {
	if n == nil || n.alive <= 0 {
		t := time.NewTicker(time.Hour)
		t.Stop()
		return t
	}
	return time.NewTicker(n.alive)
}

// close closes the connection.
func (n *notifier) close() {
	if n != nil {
		_ = n.conn.Close()
	}
}
