// Command conformance runs specs of Kubernetes' conformance suite in a node that node.sh has started, and compares the
// results with those in a list.
//
// The list has one spec in each line, with the result and the seconds on kube-apiserver and on Keelson, separated by
// tabs. The specs that exercise the API server most come first. The command fails if a spec fails that passes on
// kube-apiserver according to the list.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	var r run
	selection := flag.String("specs", ".", "regular expression of the names of specs to run")
	list := flag.String("list", "conformance.tsv", "list of specs and results")
	update := flag.Bool("update", false, "write the results into the list")
	server := flag.String("server", "keelson", "server that the node runs on: keelson or kube-apiserver")
	flag.StringVar(&r.script, "script", "node.sh", "path of node.sh")
	flag.StringVar(&r.node, "node", "", "folder of the node")
	flag.IntVar(&r.processes, "processes", 4, "number of specs that run at the same time")
	flag.DurationVar(&r.timeout, "timeout", 2*time.Hour, "longest time of the run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx, r, *list, *selection, *server, *update); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, r run, list, selection, server string, update bool) error {
	column, ok := columns[server]
	if !ok {
		return fmt.Errorf("-server must be keelson or kube-apiserver, not %q", server)
	}
	pattern, err := regexp.Compile(selection)
	if err != nil {
		return err
	}
	specs, err := readList(list)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range specs {
		if pattern.MatchString(s.name) {
			names = append(names, s.name)
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("no spec in %s matches %q", list, selection)
	}
	reports, err := r.specs(ctx, names)
	if err != nil {
		return err
	}
	worse := record(specs, reports, column)
	fmt.Print(summary(specs, reports, column))
	if update {
		if err := writeList(list, specs); err != nil {
			return err
		}
	}
	if len(worse) > 0 {
		return fmt.Errorf("%d specs failed that pass on kube-apiserver:\n%s", len(worse), strings.Join(worse, "\n"))
	}
	return nil
}

// run says how specs run.
type run struct {
	script, node string
	processes    int
	timeout      time.Duration
}

// specs runs the specs with these names and returns what ginkgo reports about them. The whole output of the suite goes
// to the file conformance.log in the folder of the node.
func (r *run) specs(ctx context.Context, names []string) ([]specReport, error) {
	folder, err := filepath.Abs(r.node)
	if err != nil {
		return nil, err
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name) + "$"
	}
	log, err := os.Create(filepath.Join(folder, "conformance.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	report := filepath.Join(folder, "conformance.json")
	if err := os.RemoveAll(report); err != nil {
		return nil, err
	}
	suite, err := exec.LookPath("e2e.test")
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, r.script, "exec", folder, "ginkgo", fmt.Sprintf("-procs=%d", r.processes), "--no-color",
		"--focus="+strings.Join(quoted, "|"), "--json-report="+filepath.Base(report), "--output-dir="+folder,
		"--timeout="+r.timeout.String(), suite, "--",
		"--provider=skeleton", "--kubeconfig="+filepath.Join(folder, "kubeconfig"), "--allowed-not-ready-nodes=-1",
		"--minStartupPods=0")
	c.Stdout, c.Stderr = log, log
	fmt.Printf("running %d specs; the output is in %s\n", len(names), log.Name())
	// ginkgo exits with 1 if a spec fails. If it could not run, there is no report.
	runErr := c.Run()
	reports, err := readReport(report)
	if err != nil {
		return nil, fmt.Errorf("the suite ended with %v and left no report: %w", runErr, err)
	}
	return reports, nil
}
