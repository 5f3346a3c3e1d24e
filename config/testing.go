package config

import "github.com/keelson-dev/keelson/clock"

// Testing is for tests. The zero value is for servers outside of tests.
type Testing struct {
	// Record records the requests of clients and lets the program that runs the server add faults: see the methods Requests,
	// Inject and CutWatches of keelson.Server.
	Record bool
	// Clock is a clock that a test moves; nil is the clock of the system. It is the time of API objects: their timestamps, how
	// long Events and leases are kept, the history window, and how long tokens and the leases of controllers hold.
	// Connections, timeouts of requests, certificates and logs use the clock of the system.
	Clock *clock.Clock
}
