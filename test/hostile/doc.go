// Package hostile attacks a running server and measures what the attack costs it.
//
// The tests are one table. Each row is an attack: who attacks, what is sent over a
// real connection, which answers must come back, and how much the server may spend.
// The server is a process of its own (the test binary starts itself again), so that
// its processor time, memory and goroutines are counted apart from the client's.
// Nothing is timed: an attack fails by what the server used, not by how long it took.
//
// # How to add a row
//
// Rows are in one file for each area: cache_test.go, bodies_test.go, edge_test.go, ...
// Each has one function that returns its rows. A row is:
//
//			{
//				name: "YAML document whose aliases multiply",
//				row:  "21",                       // the number of the case in docs/reliability.md
//				rights: []right{{verbs: "create", resources: "configmaps"}},
//				run: func(a *attack) {
//					body := ...
//					a.user.send("POST", a.path("configmaps"), yamlType, body).want(a, 400)
//				},
//				limits: limits{cpu: 2 * time.Second, peak: 64 << 20},
//			}
//
//		  - rights are granted to the attacker in the attack's own namespace, before anything
//		    is measured; clusterRights everywhere. An attacker without rights is a user whom
//		    the server knows and who may do nothing more than every user. a.user is the
//		    attacker's client, a.admin an administrator's, a.anonymous one without
//		    credentials. a.namespace exists; a.path gives paths below it.
//		  - setup prepares objects. What it costs is not measured.
//		  - run attacks, and checks the answers. It must close what it opened before it
//		    returns; connections of the three clients and those of a.dial and a.dialHTTP2
//		    are closed for it.
//		  - limits are what the server may use from the start of run until it is idle again,
//		    which includes work that goes on after the client has left. A limit that is not
//		    set has the value of defaultLimits.
//		  - server names the configuration to attack, from the function configurations. Rows
//		    of one configuration share a process. fresh starts one for this row alone.
//
//	  - slow attacks, of more than about 5 s of processor time, run with KEELSON_SLOW=1 only, as in .ci/run: together they take
//	    three of four minutes.
//
//	  - open names what the server does not withstand yet. Such a row is skipped unless
//	    KEELSON_HOSTILE_OPEN is set. The list of them only gets shorter.
//
// While run attacks, a bystander, another user on a connection of its own, reads a
// namespace over and over; every read must succeed. A row may raise the limits or set
// withoutBystander where the attack is allowed to hold others up, and then says why.
// After each row the server must be idle, answer others, and have logged no panic.
//
// A row that used too much processor time or memory is run again, at most twice: the smallest of what it used is judged,
// because other work on the machine only adds to it.
//
// A limit should be about four times what the repaired server uses, and far below
// what the attack costs when the guard is removed. `go test -v` prints the figures.
//
// Memory, descriptors and processor time are read from /proc. On other systems, and
// under the race detector, the attacks run and their answers are checked, but nothing
// is measured.
//
// KEELSON_LONG=1 multiplies the sizes of attacks that use a.size.
package hostile
