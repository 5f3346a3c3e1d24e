package authenticate

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/fairshare"
	"github.com/keelson-dev/keelson/internal/machinery/metrics"
)

const (
	// refusalLines is how many lines about refused credentials are logged a second, and refusalBurst how many at once.
	refusalLines, refusalBurst = 1, 20
	// refusalQuiet is the shortest time between two lines about the same reason, issuer and address.
	refusalQuiet = time.Minute
	// maxRemembered is the largest number of combinations of these that are remembered.
	maxRemembered = 1000
)

// Refusals counts and logs credentials that are not accepted. A line has only the reason, the issuer if it is a
// configured one, and the address of the client: nothing that the client has sent. If a client repeats its
// request, one line a minute is logged.
type Refusals struct {
	log    *slog.Logger
	now    func() time.Time
	counts map[authn.Reason]prometheus.Counter

	mu      sync.Mutex // guards what follows
	lines   *rate.Limiter
	last    map[refusalKey]time.Time // when a line was logged
	dropped int                      // since the last line
}

type refusalKey struct {
	reason          authn.Reason
	issuer, address string
}

// NewRefusals registers the metric, and returns Refusals. It may be called once.
func NewRefusals(m *metrics.Metrics, log *slog.Logger, now func() time.Time) *Refusals {
	counter := m.Counters("keelson_refused_credentials_total", "Requests whose credentials were not accepted, by the reason.", "reason")
	f := &Refusals{
		log: log, now: now, counts: map[authn.Reason]prometheus.Counter{}, lines: rate.NewLimiter(refusalLines, refusalBurst),
		last: map[refusalKey]time.Time{},
	}
	for _, reason := range authn.Reasons() {
		f.counts[reason] = counter.WithLabelValues(string(reason))
	}
	return f
}

// refused counts a request whose credentials are not accepted, and logs it if mayLog allows that. re may be nil.
func (re *Refusals) refused(r *http.Request, err error) {
	if re == nil || r.Context().Err() != nil { // a client that goes away while its token is looked at was not refused
		return
	}
	refusal := authn.RefusalOf(err)
	re.counts[refusal.Reason].Inc()
	key := refusalKey{refusal.Reason, refusal.Issuer, fairshare.ClientAddress(r.RemoteAddr).String()}
	if dropped, ok := re.mayLog(key); ok {
		re.log.Warn("the credentials of a request are not accepted", "reason", key.reason, "issuer", key.issuer, "address", key.address,
			"notLogged", dropped)
	}
}

// mayLog reports whether a line may be logged, and returns the number of lines that were dropped since the last
// one.
func (re *Refusals) mayLog(key refusalKey) (dropped int, ok bool) {
	re.mu.Lock()
	defer re.mu.Unlock()
	now := re.now()
	if at, known := re.last[key]; known && now.Sub(at) < refusalQuiet || !re.lines.AllowN(now, 1) {
		re.dropped++
		return 0, false
	}
	if len(re.last) >= maxRemembered {
		clear(re.last) // lines are repeated earlier then, at most one a second
	}
	re.last[key] = now
	dropped, re.dropped = re.dropped, 0
	return dropped, true
}
