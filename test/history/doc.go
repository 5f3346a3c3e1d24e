// Package history records what clients of an API server asked for and were told,
// and checks that it is what the server promises. It is pure: it has no server, no
// clock of its own but the one that a Recorder starts, and no goroutine.
//
// There are three kinds of evidence. Ops are requests with their answers, known or
// not. Watches are what watchers were sent. A Log is the server's own account of
// every change, read back from it afterwards. Each check compares two of them or
// looks at one alone; what it finds is a *Violation of one named promise:
//
//	CheckLinearizable  reads and writes of each key, in real time, by porcupine
//	CheckOrder         revisions of answers, in real time
//	CheckLog           acknowledged writes and consistent lists against the log
//	CheckWatch         one watch against itself and the log
//	CheckResume        two watches of one selection against each other
//
// Values must be unique: no two writes of a run write the same one.
package history
