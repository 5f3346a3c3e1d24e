package crd

import "time"

// SetCatchUpTime sets how long requests wait for changes of definitions. No request may run.
func SetCatchUpTime(s *Server, d time.Duration) { s.catchUpTime = d }
