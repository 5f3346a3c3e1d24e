package authenticate

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// NewMetrics registers the metrics of authentication. It returns the Observer that counts an attempt by its result and, if
// it succeeded, by a class of user names. User names themselves are not labels: there can be many, and they may be private.
// It may be called once.
func NewMetrics(m *metrics.Metrics) Observer {
	attempts := m.Counters("authentication_attempts", "[ALPHA] Counter of authenticated attempts.", "result")
	seconds := m.Histograms("authentication_duration_seconds", "[ALPHA] Authentication duration in seconds broken out "+
		"by result.", prometheus.ExponentialBuckets(0.001, 2, 15), "result")
	users := m.Counters("authenticated_user_requests",
		"[ALPHA] Counter of authenticated requests broken out by username.", "username")
	byClass := metrics.Resolve(users, append([]string{userEmail, userOther}, knownUsers...)...)
	byResult := metrics.Resolve(attempts, "success", "failure", "error")
	durations := map[string]prometheus.Observer{}
	for result := range byResult {
		durations[result] = seconds.WithLabelValues(result)
	}
	return func(result, user string, took time.Duration) {
		byResult[result].Inc()
		durations[result].Observe(took.Seconds())
		if result == "success" {
			byClass[userClass(user)].Inc()
		}
	}
}

// The classes of user names.
const (
	userEmail = "email_id"
	userOther = "other"
)

// knownUsers are the user names that are classes of their own.
var knownUsers = []string{"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"}

func userClass(name string) string {
	switch {
	case slices.Contains(knownUsers, name):
		return name
	case strings.Contains(name, "@"):
		return userEmail
	}
	return userOther
}
