// Package history records the requests of clients of an API server and the responses that they got, and checks that
// these keep the promises of the server. It has no server and starts no goroutines; its only clock is the one that
// NewRecorder starts.
//
// There are three kinds of records. An Op is a request with its response, if there was one. A Watch is the events that
// one watcher received. A Log has every change, as it was read back from the server afterwards. Each check looks at
// one of them or compares two of them. An error of a check is a *Violation, which names the broken promise:
//
//	CheckLinearizable  reads and writes of each key, in real time, by porcupine
//	CheckOrder         revisions of answers, in real time
//	CheckLog           acknowledged writes and consistent lists against the log
//	CheckWatch         one watch against itself and the log
//	CheckResume        two watches of one selection against each other
//
// Values must be unique: no two writes of a run write the same value.
package history
