// Package config has the configuration of a server: what the flags of the command `keelson serve` say, as Go values.
//
// The zero value of each field means its default, so that Config{} is a server like `keelson serve` without flags, but for the
// web console (Serving.Console):
//
//	c := config.Config{}
//	c.Storage.DataDir = "/var/lib/example"
//	c.Serving.Port = 8443
//	s, err := keelson.Start(ctx, c)
//
// Default, InMemory and KubeAPIServer return configurations to begin with, in which the defaults are written out. To
// change Storage.Backend or Authentication.NoOwnCredentials, begin with Config{}: defaults of other fields depend on them. Where 0
// says something else than the default (no limit, no caching), the field says that None stands for it. A switch that is on
// by default has a field that switches it off: Requests.NoPriorityAndFairness.
//
// The comment of a field names the flag of the command that sets it, and so does its struct tag.
package config

// Config configures a server.
type Config struct {
	// Storage configures where the objects are kept, and for how long.
	Storage Storage
	// Serving configures the HTTPS server.
	Serving Serving
	// Authentication configures whose requests are accepted.
	Authentication Authentication
	// Authorization configures the permissions of users.
	Authorization Authorization
	// Admission configures which objects are accepted.
	Admission Admission
	// Audit configures the audit log.
	Audit Audit
	// Requests has the limits of requests.
	Requests Requests
	// Network has the addresses of Services, and how the server reaches others and is reached by them.
	Network Network
	// Controllers configures the controllers in the server.
	Controllers Controllers
	// API selects the parts of the API that are served.
	API API
	// Diagnostics configures the log, metrics, traces and profiles.
	Diagnostics Diagnostics
	// Testing is for tests.
	Testing Testing
}

// None stands for 0 in fields whose zero value means another default: no limit, no caching, no waiting. The comments of
// these fields name it. It is a number and a duration.
const None = -1

// FreePort is the Serving.Port of a server that listens on a free port.
const FreePort = None
