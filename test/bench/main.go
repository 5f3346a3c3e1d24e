// Command bench loads an API server, Keelson or kube-apiserver, and prints its speed and size, beside kube-apiserver's
// figures and beside floors that are measured in the same run. See README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"runtime/pprof"
	"syscall"
)

// clientGC is the GOGC value of the client. The client's memory is not measured, but it shares the processors with the
// server, so it collects seldom.
const clientGC = 800

type options struct {
	server, token string
	pid           int
	start         string
	against       string
	reference     string
	cost, layers  bool
	plot          string
	rounds        int
	etcd          string
	dir           string
	rows          *regexp.Regexp
	pods          int
	definitions   int
	connections   int
	long          bool
	objects       int
	json, label   string
	profile       string
	serverLog     string
}

// commands are what the first argument may name instead of a flag. The first two are run by this program itself.
var commands = []struct {
	name      string
	arguments int
	run       func([]string) error
}{
	{floorCommand, 1, func(a []string) error { return serveFloor(a[0]) }},
	{nullCommand, 2, func(a []string) error { return serveNull(a[0], a[1]) }},
	{daysCommand, 1, func(a []string) error { return replayDays(a[0], os.Stdout) }},
	{copyCommand, 3, func(a []string) error { return measureCopy(context.Background(), a[0], a[1], a[2], os.Stdout) }},
	{restoreCommand, 3, func(a []string) error { return measureRestore(context.Background(), a[0], a[1], a[2], os.Stdout) }},
}

func main() {
	for _, c := range commands {
		if len(os.Args) == 2+c.arguments && os.Args[1] == c.name {
			if err := c.run(os.Args[2:]); err != nil {
				fmt.Fprintf(os.Stderr, "bench: %s: %v\n", c.name, err)
				os.Exit(1)
			}
			return
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string, errOut io.Writer) (*options, error) {
	o := &options{}
	var rows string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&o.server, "server", "", "https:// URL of a running server on this machine")
	f.StringVar(&o.token, "token", "benchtoken", "bearer token of a member of system:masters")
	f.IntVar(&o.pid, "pid", 0, "process of --server, for memory and processor time; its descendants count")
	f.StringVar(
		&o.start, "start", "",
		"instead of --server: command line that starts one; {dir}, {port}, {tokens}, {key}, {etcd} and {bench} are replaced",
	)
	f.StringVar(&o.against, "against", "", "command line of a second server, to compare the one of --start with")
	f.BoolVar(
		&o.cost, "cost", false, "measure the processor time of each operation, beside a floor that does only what must be done",
	)
	f.BoolVar(
		&o.layers, "layers", false, "with --cost: also where the time goes in the first server, from profiles of it",
	)
	f.StringVar(&o.reference, "reference", "", "with --cost: command line of a third server")
	f.StringVar(&o.plot, "plot", "", "with --cost: file for a picture (SVG)")
	f.IntVar(&o.rounds, "rounds", 3, "rounds of a comparison, of which the best counts")
	f.StringVar(&o.etcd, "etcd", "", "program of etcd, for command lines with {etcd}")
	f.StringVar(
		&o.dir, "dir", "", "directory, on the disk to measure, for data of servers and floors (default a temporary one)",
	)
	f.StringVar(&rows, "rows", "", "regular expression of the rows to measure (default all)")
	f.IntVar(&o.pods, "pods", 10_000, "pods to create and list")
	f.IntVar(&o.definitions, "definitions", 1000, "custom resource definitions to create")
	f.IntVar(&o.connections, "connections", 1, "connections that the 64 requests in flight are spread over")
	f.IntVar(&o.objects, "objects", 1_000_000, "small objects of the rows of scale (with --long)")
	f.BoolVar(&o.long, "long", false, "also the rows that take minutes")
	f.StringVar(&o.json, "json", "", "file to write the figures to")
	f.StringVar(&o.label, "label", "", "title of the table")
	f.StringVar(&o.profile, "cpuprofile", "", "file to write this client's own CPU profile to")
	f.StringVar(&o.serverLog, "server-log", os.DevNull, "file for the output of the server that --start starts")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if (o.server == "") == (o.start == "") {
		return nil, errors.New("give either --server or --start")
	}
	if (o.against != "" || o.cost) && (o.start == "" || o.rounds < 1) {
		return nil, errors.New("--against and --cost need --start and at least one round")
	}
	if !o.cost && (o.reference != "" || o.plot != "" || o.layers) {
		return nil, errors.New("--reference, --plot and --layers need --cost")
	}
	if o.definitions < 1 || o.definitions > 100_000 {
		return nil, errors.New("--definitions must be between 1 and 100000")
	}
	if o.pods < 1 || o.pods > 1_000_000 || o.connections < 1 || o.connections > inFlight {
		return nil, fmt.Errorf("--pods must be between 1 and 1000000, --connections between 1 and %d", inFlight)
	}
	if o.objects < 10*pageLimit || o.objects > 10_000_000 {
		return nil, fmt.Errorf("--objects must be between %d and 10000000", 10*pageLimit)
	}
	var err error
	o.rows, err = regexp.Compile(rows)
	return o, err
}

func command(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	debug.SetGCPercent(clientGC)
	if o.profile != "" {
		file, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	dir, err := os.MkdirTemp(o.dir, "keelson-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.cost {
		return compareCosts(ctx, o, dir, out, errOut)
	}
	if o.against != "" {
		return compare(ctx, o, dir, out, errOut)
	}
	b, err := newBench(ctx, o, dir, errOut)
	if err != nil {
		return err
	}
	defer b.close()
	b.run()
	if o.json != "" {
		content, err := json.MarshalIndent(&b.report, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(content, '\n'), 0o644); err != nil {
			return err
		}
	}
	return b.report.print(out)
}
