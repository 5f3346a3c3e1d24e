// Package config has the configuration of a server. Its fields correspond to the flags of the command `keelson
// serve`.
//
// The zero value of each field means its default, so that Config{} is a server like `keelson serve` without flags, but for the
// web console (Serving.Console):
//
//	c := config.Config{}
//	c.Storage.DataDir = "/var/lib/example"
//	c.Serving.Port = 8443
//	s, err := keelson.Start(ctx, c)
//
// Default, InMemory and KubeAPIServer return configurations in which all defaults are set. To change
// Storage.Backend or Authentication.NoOwnCredentials, begin with Config{} instead, because defaults of other
// fields depend on them. In some fields, 0 would mean something other than the default, such as no limit. Their
// comments say that None means 0 there. A function that is on by default has a field that switches it off, such as
// Requests.NoPriorityAndFairness.
//
// The comment of a field names the flag of the command that sets it, and so does its struct tag.
package config

// Config configures a server.
type Config struct {
	// Storage configures where the objects are kept, and for how long.
	Storage Storage
	// Serving configures the HTTPS server.
	Serving Serving
	// Authentication configures how the users of requests are determined.
	Authentication Authentication
	// Authorization configures the permissions of users.
	Authorization Authorization
	// Admission configures the plug-ins that check and change objects before they are stored.
	Admission Admission
	// Audit configures the audit log.
	Audit Audit
	// Requests has the limits of requests.
	Requests Requests
	// Network has the addresses of Services, and configures connections to other servers and from them.
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

// None means 0 in fields whose zero value means a default other than 0. Depending on the field, 0 is no limit, no
// caching or no waiting. The comments of these fields name None. It can be used as a number and as a duration.
const None = -1

// FreePort is the Serving.Port of a server that listens on a free port.
const FreePort = None
