package embedded

import (
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

// Commits has the metrics of the transactions that the embedded store makes durable together.
type Commits struct {
	transactions *metrics.Histogram
	seconds      *metrics.Histogram
}

// NewCommits registers and returns the metrics of commits. It may be called once.
func NewCommits(m *metrics.Metrics) *Commits {
	transactions := m.Sizes("keelson_commit_group_transactions", "Number of transactions that one write of the log of "+
		"the embedded store makes durable together.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024})
	seconds := m.Durations("keelson_commit_group_duration_seconds", "Time from the start of planning a group of "+
		"transactions until it is durable.", []float64{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10})
	return &Commits{transactions: transactions.With(), seconds: seconds.With()}
}

// Group records a group of transactions that became durable.
func (c *Commits) Group(transactions int, took time.Duration) {
	c.transactions.Observe(int64(transactions))
	c.seconds.Observe(int64(took))
}
