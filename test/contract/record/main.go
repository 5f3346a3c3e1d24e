// Command record sends the requests of recorded scenarios to a kube-apiserver and stores its answers, for the replay in
// package contract. It finds out itself of which minor the answers are:
//
//	go run ./test/contract/record --server https://127.0.0.1:6443 --token T --out test/contract/testdata
//
// or, with a kube-apiserver and an etcd that it starts on fresh data:
//
//	go run ./test/contract/record --reference PATH_OF_KUBE_APISERVER --etcd PATH_OF_ETCD --out test/contract/testdata
//
// A newer minor than all before becomes the base; of the minor that was the base only those answers are kept that
// differ. The same is true of an older minor that is recorded (--emulated-version). The requests may leave objects behind,
// so each run needs a server without data of earlier runs.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"

	"github.com/keelson-dev/keelson/test/compare/servers"
	"github.com/keelson-dev/keelson/test/contract"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	server, token            string
	reference, etcd, emulate string
	in, out, scenarios, only string
	replay                   bool
	passes, jobs             int
}

const testdata = "test/contract/testdata"

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("record", flag.ContinueOnError)
	f.StringVar(&o.server, "server", "", "URL of a running kube-apiserver without data")
	f.StringVar(&o.token, "token", contract.Token, "token of a member of system:masters there")
	f.StringVar(&o.reference, "reference", "", "program of kube-apiserver to start, instead of --server")
	f.StringVar(&o.etcd, "etcd", "", "program of etcd for --reference")
	f.StringVar(&o.emulate, "emulated-version", "", "minor that --reference emulates, as 1.36")
	f.StringVar(&o.in, "in", testdata, "folder of the recording with the requests")
	f.StringVar(&o.out, "out", "", "folder to write the recording to; may be that of --in")
	f.StringVar(&o.scenarios, "scenarios", "", "file NAME.jsonl of new scenarios without answers, which are added to NAME.jsonl.gz")
	f.StringVar(&o.only, "only", "", "send only the scenarios whose name matches the regular expression")
	f.BoolVar(&o.replay, "replay", false, "compare the answers with those stored, print the differences and write nothing")
	f.IntVar(&o.passes, "passes", 2, "how often --reference is started: a step that it does not always answer equally gets all answers; "+
		"with --replay, what differs is tried again that often")
	f.IntVar(&o.jobs, "jobs", 12, "how many scenarios are sent at a time")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", f.Arg(0))
	case (o.server == "") == (o.reference == ""):
		return o, errors.New("either --server or --reference is needed")
	case o.reference != "" && o.etcd == "":
		return o, errors.New("--reference needs --etcd")
	case o.out == "" && !o.replay:
		return o, errors.New("--out is needed")
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.server != "" {
		o.passes = 1 // a second one would meet the data of the first
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	r, err := contract.ReadRecording(o.in)
	if err != nil {
		return err
	}
	if o.scenarios != "" {
		if err := r.AddScenarios(o.scenarios); err != nil {
			return err
		}
	}
	if o.replay {
		return o.compare(ctx, r, only, out)
	}
	scenarios := contract.Select(r.Requests(), only)
	var passes [][][]contract.StepResult
	var minor string
	for range max(o.passes, 1) {
		err := o.onServer(ctx, func(c *contract.Client, m string) error {
			minor = m
			passes = append(passes, contract.ReplayJobs(ctx, c, scenarios, o.jobs))
			return nil
		})
		if err != nil {
			return err
		}
	}
	unequal, err := r.Put(minor, scenarios, passes...)
	if err != nil {
		return err
	}
	if err := r.Write(o.out); err != nil {
		return err
	}
	for _, step := range unequal {
		fmt.Fprintf(out, "%s has several answers\n", step)
	}
	fmt.Fprintf(out, "recorded %s: %d scenarios, passes: %d\n", minor, len(scenarios), len(passes))
	for i, m := range r.Minors() {
		if i == 0 {
			fmt.Fprintf(out, "%s: all steps\n", m)
		} else {
			fmt.Fprintf(out, "%s: %d steps differ, in %d scenarios\n", m, r.DifferingSteps(m), len(r.Differing(m)))
		}
	}
	return nil
}

// onServer calls f with a client of --server, or of a new server of --reference, which it ends afterwards.
func (o options) onServer(ctx context.Context, f func(c *contract.Client, minor string) error) (err error) {
	if o.reference != "" {
		g, err := servers.NewGroup(servers.Settings{Emulated: o.emulate})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, g.Close()) }()
		s, err := g.KubeAPIServer(ctx, o.reference, o.etcd)
		if err != nil {
			return err
		}
		o.server, o.token = s.URL, servers.Token
	}
	minor, err := minorOf(ctx, o.server, o.token)
	if err != nil {
		return err
	}
	c := contract.NewClient(o.server, o.token)
	defer c.Close()
	return f(c, minor)
}

// compare compares the answers of a server with the recorded ones of its minor. Scenarios that differ are tried again on a
// new server, if there is one. It fails if some differ each time.
func (o options) compare(ctx context.Context, r *contract.Recording, only *regexp.Regexp, out io.Writer) error {
	var differ map[string]string // by the name of the scenario
	for pass := range max(o.passes, 1) {
		err := o.onServer(ctx, func(c *contract.Client, minor string) error {
			scenarios, err := r.Scenarios(minor)
			if err != nil {
				return err
			}
			scenarios = slices.DeleteFunc(contract.Select(scenarios, only), func(s *contract.Scenario) bool {
				return pass > 0 && differ[s.Name] == ""
			})
			differ = map[string]string{}
			steps := 0
			for i, results := range contract.ReplayJobs(ctx, c, scenarios, o.jobs) {
				steps += len(results)
				for _, f := range contract.Failures(results) {
					differ[scenarios[i].Name] += fmt.Sprintf("%s%v\n", scenarios[i].Name, f)
				}
			}
			fmt.Fprintf(out, "replayed %s: %d scenarios, %d steps, %d scenarios differ\n", minor, len(scenarios), steps, len(differ))
			return nil
		})
		if err != nil {
			return err
		}
		if len(differ) == 0 {
			return nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(differ)) {
		fmt.Fprint(out, differ[name])
	}
	return fmt.Errorf("%d scenarios differ", len(differ))
}

// minorOf returns the minor as which a server behaves, as 1.37.
func minorOf(ctx context.Context, server, token string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/version", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	c := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the server belongs to the test
	}}
	defer c.CloseIdleConnections()
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var v struct{ Major, Minor, EmulationMajor, EmulationMinor string }
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET /version: %s, %w", resp.Status, err)
	}
	// Servers before 1.33 do not have the emulated version.
	return cmp.Or(v.EmulationMajor, v.Major) + "." + cmp.Or(v.EmulationMinor, v.Minor), nil
}
