package flowcontrol

import (
	"cmp"
	"math"
	"net/http"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol/allotment"
	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol/classify"
	"github.com/keelson-dev/keelson/internal/gateway/flowcontrol/fairqueue"
	declared "github.com/keelson-dev/keelson/internal/resource/flowcontrol"
)

// config is the data for the classification of requests. It is immutable.
type config struct {
	classifier *classify.Classifier
	schemas    []*schema // in the order of precedence
	fallback   *schema   // catch-all, for requests that match no schema
}

// schema is a FlowSchema whose priority level exists.
type schema struct {
	flow          *flow
	distinguisher flowcontrolv1.FlowDistinguisherMethodType // "" makes all requests one flow
	// The values of the headers of responses.
	schemaUID, levelUID []string
}

// The headers of responses that name the FlowSchema and the priority level of a request.
var (
	schemaHeader = http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
	levelHeader  = http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)
)

// Configure replaces the configuration. Requests that wait or execute are not disturbed. The mandatory objects are added
// if they are missing. FlowSchemas whose priority level does not exist are ignored.
func (c *Controller) Configure(
	schemas []*flowcontrolv1.FlowSchema, levels []*flowcontrolv1.PriorityLevelConfiguration,
) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.levels {
		l.wanted = false
	}
	for _, p := range withMandatory(levels, declared.MandatoryLevels()) {
		c.configureLevel(p)
	}
	c.divideNominally()
	next := &config{}
	var specs []*flowcontrolv1.FlowSchemaSpec
	used := map[flowKey]*flow{}
	for _, s := range withMandatorySchemas(schemas) {
		l := c.levels[s.Spec.PriorityLevelConfiguration.Name]
		if l == nil || !l.wanted {
			continue
		}
		compiled := c.compile(s, l)
		used[flowKey{s.Name, l.name}] = compiled.flow
		if s.Name == flowcontrolv1.FlowSchemaNameCatchAll {
			next.fallback = compiled
		}
		next.schemas = append(next.schemas, compiled)
		specs = append(specs, &s.Spec)
	}
	next.classifier = classify.Compile(specs)
	c.flows = used
	c.current.Store(next)
}

// compile returns a FlowSchema in the form that requests use.
func (c *Controller) compile(s *flowcontrolv1.FlowSchema, l *level) *schema {
	f := c.flows[flowKey{s.Name, l.name}]
	if f == nil || f.level != l {
		f = &flow{schema: s.Name, level: l}
	}
	out := &schema{flow: f, schemaUID: []string{string(s.UID)}, levelUID: []string{l.uid}}
	if d := s.Spec.DistinguisherMethod; d != nil {
		out.distinguisher = d.Type
	}
	return out
}

// withMandatory returns objects, and behind them the mandatory objects that are missing.
func withMandatory[T metav1.Object](objects, mandatory []T) []T {
	out := slices.Clone(objects)
	for _, m := range mandatory {
		if !slices.ContainsFunc(objects, func(o T) bool { return o.GetName() == m.GetName() }) {
			out = append(out, m)
		}
	}
	return out
}

// withMandatorySchemas returns schemas and the mandatory schemas that are missing, in the order of precedence.
func withMandatorySchemas(schemas []*flowcontrolv1.FlowSchema) []*flowcontrolv1.FlowSchema {
	out := withMandatory(schemas, declared.MandatorySchemas())
	slices.SortFunc(out, func(a, b *flowcontrolv1.FlowSchema) int {
		return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// configureLevel creates or changes a level.
func (c *Controller) configureLevel(p *flowcontrolv1.PriorityLevelConfiguration) {
	queues := fairqueue.Config{Exempt: p.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt}
	var shares allotment.Shares
	if e := p.Spec.Exempt; e != nil {
		shares = allotment.Shares{Nominal: value(e.NominalConcurrencyShares, 0), LendablePercent: value(e.LendablePercent, 0)}
	}
	if limited := p.Spec.Limited; limited != nil {
		shares = allotment.Shares{
			Nominal: value(limited.NominalConcurrencyShares, defaultShares), LendablePercent: value(limited.LendablePercent, 0),
		}
		if b := limited.BorrowingLimitPercent; b != nil {
			shares.BorrowingPercent = new(int(*b))
		}
		if q := limited.LimitResponse.Queuing; q != nil {
			queues.Queues, queues.HandSize, queues.QueueLength = int(q.Queues), int(q.HandSize), int(q.QueueLengthLimit)
		}
	}
	l := c.levels[p.Name]
	if l == nil {
		l = &level{name: p.Name, queues: fairqueue.New(queues, 0, c.now())}
		c.levels[p.Name] = l
		l.assigned = -1
	}
	l.wanted, l.exempt, l.uid, l.shares = true, queues.Exempt, string(p.UID), shares
	now := l.lock(c)
	l.queues.Configure(now, queues)
	l.unlock(now)
}

// defaultShares are the shares of a level that does not configure them.
const defaultShares = 30

func value(p *int32, otherwise int) int {
	if p == nil {
		return otherwise
	}
	return int(*p)
}

// divideNominally computes the nominal seats of all levels. A level that is new or whose bounds have changed gets them
// until the next division.
func (c *Controller) divideNominally() {
	shares := 0
	for _, l := range c.levels {
		shares += l.shares.Nominal
	}
	for _, l := range c.levels {
		old := l.bounds
		l.bounds = l.shares.Of(shares, c.seats)
		l.mostSeat.Store(int64(max(1, math.Ceil(largestWidth*float64(l.bounds.Nominal)))))
		now := l.lock(c)
		l.queues.SetNominal(now, l.bounds.Nominal)
		l.unlock(now)
		if l.assigned < 0 || old != l.bounds {
			l.assign(c, l.bounds.Nominal)
		}
	}
}

// largestWidth limits the width of one request, as a part of the nominal seats of its level.
const largestWidth = 0.15
