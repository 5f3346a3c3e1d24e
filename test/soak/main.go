// Command soak loads a server for an hour and reports whether anything grows. It starts the server as a child process
// on a new data directory. It writes objects of several kinds at a constant rate, while the number of live objects
// stays the same; watchers, readers, and clients that connect and disconnect run at the same time. Every ten seconds
// it writes the server's resource usage and latencies to a CSV file. At the end it prints two Markdown tables: the
// figures by intervals, and for each figure whether it was flat. docs/reliability.md has the results.
//
//	go run ./test/soak -duration 1h -csv soak.csv > soak.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type options struct {
	duration, sample, interval time.Duration
	rate, watchers, workers    int
	scale                      float64
	warm                       int
	history                    time.Duration
	program, dir, csv          string
	seed                       uint64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func parse(args []string, errOut io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("soak", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.DurationVar(&o.duration, "duration", time.Hour, "how long the load lasts")
	f.DurationVar(&o.sample, "sample", 10*time.Second, "how often figures are noted")
	f.DurationVar(&o.interval, "interval", 5*time.Minute, "rows of the table")
	f.IntVar(&o.rate, "rate", 300, "writes a second")
	f.IntVar(&o.watchers, "watchers", 20, "watches that last")
	f.IntVar(&o.workers, "workers", 32, "writes in flight at most")
	f.Float64Var(&o.scale, "scale", 1, "live objects, as a multiple of the usual number")
	f.IntVar(
		&o.warm, "warm", 40,
		"MiB that are written of each kind before the load begins, to fill what the server keeps of recent changes",
	)
	f.DurationVar(&o.history, "history-window", 0, "of the server; 0 is the server's default")
	f.StringVar(&o.program, "server", "", "keelson program (default: built from this checkout)")
	f.StringVar(
		&o.dir, "dir", "", "directory for the data and the server's log (default a temporary one, removed at the end)",
	)
	f.StringVar(&o.csv, "csv", "soak.csv", "file for the figures")
	f.Uint64Var(&o.seed, "seed", 1, "of random choices")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.rate < 1 || o.workers < 1 || o.watchers < 1 || o.scale <= 0 {
		return nil, errors.New("--rate, --workers, --watchers and --scale must be positive")
	}
	if o.sample <= 0 || o.interval < o.sample || o.duration < o.interval {
		return nil, errors.New("--sample must not be longer than --interval, nor --interval longer than --duration")
	}
	return o, nil
}

func command(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "keelson-soak-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.dir)
	}
	csv, err := os.Create(o.csv)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, csv.Close()) }()
	s, err := startServer(ctx, o, errOut)
	if err != nil {
		return err
	}
	defer s.stop()
	r := newRun(o, s)
	fmt.Fprintf(errOut, "soak: creating %d objects\n", r.live())
	if err := r.prepare(ctx); err != nil {
		return err
	}
	samples, err := r.load(ctx, csv, errOut)
	if err != nil {
		return err
	}
	return report(out, o, samples, r.figures.errorsSeen())
}
