package admission

import (
	"sync/atomic"
	"time"
)

// Observer records how long admission takes, by the names of Pass and Operation. Each method returns a function that records
// the durations of one combination. The caller keeps this function: finding it again for each call costs more than most
// plug-ins. rejected is for writes that were refused.
type Observer interface {
	// Plugin returns the function that records the calls of one plug-in.
	Plugin(name, pass, operation string, rejected bool) func(seconds float64)
	// Step returns the function that records whole passes.
	Step(pass, operation string, rejected bool) func(seconds float64)
}

// timer records the durations of a plug-in or of a pass. The function for a combination of operation and result is made when
// the combination first happens, so that combinations that never happen have no metric. A nil timer records nothing.
type timer struct {
	kept [4][2]atomic.Pointer[func(seconds float64)] // by operation, and by whether the write was refused
	find func(operation string, rejected bool) func(seconds float64)
}

// pluginTimer returns the timer of a plug-in in a pass.
func pluginTimer(o Observer, name string, pass Pass) *timer {
	if o == nil {
		return nil
	}
	return &timer{find: func(operation string, rejected bool) func(float64) {
		return o.Plugin(name, pass.String(), operation, rejected)
	}}
}

// passTimer returns the timer of a whole pass.
func passTimer(o Observer, pass Pass) *timer {
	if o == nil {
		return nil
	}
	return &timer{find: func(operation string, rejected bool) func(float64) {
		return o.Step(pass.String(), operation, rejected)
	}}
}

func (t *timer) record(o Operation, rejected bool, took time.Duration) {
	if t == nil {
		return
	}
	result := 0
	if rejected {
		result = 1
	}
	kept := &t.kept[o][result]
	observe := kept.Load()
	if observe == nil {
		made := t.find(o.String(), rejected)
		observe = &made
		kept.Store(observe)
	}
	(*observe)(took.Seconds())
}
