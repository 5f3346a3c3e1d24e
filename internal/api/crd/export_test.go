package crd

import "time"

// SetOwnTime sets how long requests wait for changes that this process has acknowledged. No request may run.
func SetOwnTime(s *Server, d time.Duration) { s.ownTime = d }
