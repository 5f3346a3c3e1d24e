package contract

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/keelson-dev/keelson/config"
)

const (
	// Token is the token of a member of system:masters on servers with Configure.
	Token = "admintoken"

	// parallel is the number of scenarios that run at a time. Most of their time they wait for watches to end.
	parallel = 48
	// sample is the number of scenarios of which a short run replays one.
	sample = 3
)

// Configure changes a configuration to that of the recorded kube-apiserver; dir is a directory for files.
func Configure(c *config.Config, dir string) error {
	c.Authentication.TokenFile, c.Network.ServiceClusterIPRange = filepath.Join(dir, "tokens.csv"), "10.0.0.0/16"
	c.Controllers.Names = []string{"-*"}                        // no kube-controller-manager ran there
	c.Controllers.NoQuotaUsage = true                           // nothing counted usage there
	c.Controllers.NoDefaultServiceAccounts = true               // clients create them there
	c.Diagnostics.SetVerbosity = func(int) error { return nil } // as in cmd/keelson, so that the path exists
	return os.WriteFile(c.Authentication.TokenFile, []byte(Token+`,admin,admin,"system:masters"`+"\n"), 0o600)
}

// Recorded returns the scenarios in dir with the answers of the newest minor.
func Recorded(dir string) ([]*Scenario, error) {
	r, err := ReadRecording(dir)
	if err != nil {
		return nil, err
	}
	return r.Scenarios(r.Newest())
}

// Sampled reports whether s belongs to short runs, which have only some of the scenarios, and none that wait.
func (s *Scenario) Sampled() bool { return !s.waits() && s.index%sample == 0 }

// Replay runs scenarios in parallel, those that wait first. The results are in the order of the scenarios.
func Replay(ctx context.Context, c *Client, scenarios []*Scenario) [][]StepResult {
	return ReplayJobs(ctx, c, scenarios, parallel)
}

// ReplayJobs is Replay with a number of scenarios that run at a time.
func ReplayJobs(ctx context.Context, c *Client, scenarios []*Scenario, jobs int) [][]StepResult {
	order := slices.Clone(scenarios)
	slices.SortStableFunc(order, func(a, b *Scenario) int {
		switch {
		case a.waits() == b.waits():
			return 0
		case a.waits():
			return -1
		}
		return 1
	})
	byScenario := map[*Scenario][]StepResult{}
	var mu sync.Mutex // guards byScenario
	work := make(chan *Scenario)
	var workers sync.WaitGroup
	for range jobs {
		workers.Go(func() {
			for s := range work {
				r := c.Run(ctx, s)
				mu.Lock()
				byScenario[s] = r
				mu.Unlock()
			}
		})
	}
	for _, s := range order {
		work <- s
	}
	close(work)
	workers.Wait()
	var out [][]StepResult
	for _, s := range scenarios {
		out = append(out, byScenario[s])
	}
	return out
}

// Failures returns the results that differ from the recorded responses.
func Failures(results []StepResult) []*StepResult {
	var out []*StepResult
	for i := range results {
		if !results[i].passed() {
			out = append(out, &results[i])
		}
	}
	return out
}

// String returns the step and the differences.
func (r *StepResult) String() string { return fmt.Sprintf("[%d] %s", r.index, r.describe()) }

func (r *StepResult) describe() string {
	if r.err != nil {
		return r.step.Do + ": " + r.err.Error()
	}
	if !r.code {
		return fmt.Sprintf("%s: want %d got %d\n\twant %s\n\tgot  %s", r.step.Do, r.step.Expect.Status, r.got.Status,
			shorten(text(r.step.Expect.Body)), shorten(text(r.got.Body)))
	}
	var b strings.Builder
	b.WriteString(r.step.Do)
	for _, d := range r.diffs {
		b.WriteString("\n\t" + d.String())
	}
	return b.String()
}
