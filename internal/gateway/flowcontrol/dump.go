package flowcontrol

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol/fairqueue"
)

// dumpPath is the folder of the pages that show the state of the Controller.
const dumpPath = "/debug/api_priority_and_fairness/"

// Serves reports whether a path is one of the pages that show the state.
func (c *Controller) Serves(path string) bool {
	return strings.HasPrefix(path, dumpPath) && slices.Contains(c.Paths(), path)
}

// Paths returns the paths of the pages.
func (c *Controller) Paths() []string {
	return []string{dumpPath + "dump_priority_levels", dumpPath + "dump_queues", dumpPath + "dump_requests"}
}

// ServeHTTP serves a page as a table: its columns are separated by commas and aligned by spaces.
func (c *Controller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var rows [][]string
	switch strings.TrimPrefix(r.URL.Path, dumpPath) {
	case "dump_priority_levels":
		rows = c.levelRows()
	case "dump_queues":
		rows = c.queueRows()
	default:
		rows = c.requestRows(r.URL.Query().Get("includeRequestDetails") == "1")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	const minWidth, padding = 8, 1
	table := tabwriter.NewWriter(w, minWidth, 0, padding, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, ",\t"))
	}
	_ = table.Flush() // the client may be gone
}

// snapshot calls f with each level, by name, while the level is locked.
func (c *Controller) snapshot(f func(l *level, now time.Duration)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.sortedLevels() {
		now := l.lock(c)
		f(l, now)
		l.unlock(now)
	}
}

func (c *Controller) levelRows() [][]string {
	rows := [][]string{{
		"PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests",
		"DispatchedRequests", "RejectedRequests", "TimedoutRequests", "CancelledRequests",
	}}
	c.snapshot(func(l *level, _ time.Duration) {
		n, t := l.queues.Counts(), l.totals
		rows = append(rows, append([]string{l.name}, texts(n.ActiveQueues, l.queues.Idle(), !l.wanted, n.Waiting, n.Executing,
			t.dispatched, t.rejected, t.timedOut, t.cancelled)...))
	})
	return rows
}

// maxIdleQueues limits the number of inactive queues of a level that are listed: a level may have millions.
const maxIdleQueues = 1024

func (c *Controller) queueRows() [][]string {
	rows := [][]string{{
		"PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR",
		"InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum",
	}}
	c.snapshot(func(l *level, _ time.Duration) {
		active := l.queues.Queues()
		row := func(q fairqueue.QueueState) {
			initial := 0
			for _, r := range q.Requests {
				initial += r.Owner.(*Ticket).estimate.Initial
			}
			rows = append(rows, append([]string{l.name}, texts(q.Index, q.Waiting, q.Executing, q.Seats,
				seatSeconds(q.NextStart), initial, q.WaitingSeats, seatSeconds(q.Work))...))
		}
		for i := range min(l.queues.Config().Queues, maxIdleQueues) {
			q := fairqueue.QueueState{Index: i}
			if len(active) > 0 && active[0].Index == i {
				q, active = active[0], active[1:]
			}
			row(q)
		}
		for _, q := range active {
			row(q)
		}
	})
	return rows
}

// maxListedRequests limits the number of waiting requests that are listed.
const maxListedRequests = 10000

func (c *Controller) requestRows(details bool) [][]string {
	header := []string{
		"PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher", "ArriveTime",
		"InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime",
	}
	if details {
		header = append(header, "UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
	}
	rows := [][]string{header}
	c.snapshot(func(l *level, _ time.Duration) {
		for _, q := range l.queues.Queues() {
			for i, r := range q.Requests {
				if len(rows) > maxListedRequests {
					return
				}
				t := r.Owner.(*Ticket)
				row := append([]string{l.name, t.flow.schema}, texts(q.Index, i, t.distinct,
					c.began.Add(t.arrived).UTC().Format(time.RFC3339Nano), t.estimate.Initial, t.estimate.Final, t.estimate.Extra,
					time.Time{}.Format(time.RFC3339Nano))...)
				if details {
					info := t.info
					row = append(row, t.user.Name, info.Verb, info.Path, info.Namespace, info.Name, info.Version, info.Resource,
						info.Subresource)
				}
				rows = append(rows, row)
			}
		}
	})
	return slices.Clip(rows)
}

func texts(values ...any) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprint(v)
	}
	return out
}

func seatSeconds(v float64) string {
	const digits, size = 8, 64
	return strconv.FormatFloat(v, 'f', digits, size) + "ss"
}
