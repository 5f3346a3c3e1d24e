package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/internal/server/version"
	"github.com/keelson-dev/keelson/internal/storage/memoryetcd"
)

// etcdName is the name of the program that replaces etcd in tests.
const etcdName = "etcd"

// etcdProgram has the flags of the program etcd that have an effect.
type etcdProgram struct {
	options              memoryetcd.Options
	clientURLs, peerURLs []string // the addresses at which it listens
	showVersion          bool
}

// newEtcd returns the command that replaces etcd in tests.
func newEtcd(out, errOut io.Writer) *cobra.Command {
	var p etcdProgram
	c := &cobra.Command{
		Use: etcdName, Short: "Keelson in the place of etcd, for tests", Args: cobra.NoArgs,
		Long: "This is Keelson under the name etcd, for tests that start etcd beside kube-apiserver. It serves the API\n" +
			"of etcd from memory: nothing is written to disk, and everything is gone when it ends.",
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if p.showVersion {
				_, err := fmt.Fprintf(out, "etcd Version: %s\nThis is Keelson %s, in memory, for tests\n",
					memoryetcd.Version, version.Keelson)
				return err
			}
			return p.run(c.Context(), errOut)
		},
	}
	c.SetOut(out)
	c.SetErr(errOut)
	c.CompletionOptions.DisableDefaultCmd = true
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w (this is Keelson in the place of etcd, for tests; it has the flags that --help shows)", err)
	})
	p.addFlags(c.Flags())
	return c
}

func (p *etcdProgram) addFlags(f *pflag.FlagSet) {
	o := &p.options
	f.StringVar(&o.Name, "name", "default", "name in the list of members")
	f.StringSliceVar(
		&p.clientURLs, "listen-client-urls", []string{"http://localhost:2379"}, "http URLs to listen on for clients",
	)
	f.StringSliceVar(
		&o.ClientURLs, "advertise-client-urls", []string{"http://localhost:2379"}, "URLs of clients in the list of members",
	)
	f.StringSliceVar(
		&p.peerURLs, "listen-peer-urls", []string{"http://localhost:2380"},
		"http URLs to listen on for other members; there are none, and the answers are the same as for clients",
	)
	f.StringSliceVar(
		&o.PeerURLs, "initial-advertise-peer-urls", []string{"http://localhost:2380"}, "URLs of peers in the list of members",
	)
	f.IntVar(
		&o.MaxRequestBytes, "max-request-bytes", memoryetcd.DefaultMaxRequestBytes, "limit of a request that writes, in bytes",
	)
	f.IntVar(&o.MaxTxnOps, "max-txn-ops", memoryetcd.DefaultMaxTxnOps, "limit of the operations of a transaction")
	for _, name := range []string{"watch-progress-notify-interval", "experimental-watch-progress-notify-interval"} {
		f.DurationVar(
			&o.ProgressInterval, name, memoryetcd.DefaultProgressInterval,
			"how often a watch without changes that asks for it is sent the revision",
		)
	}
	f.BoolVar(&p.showVersion, "version", false, "print the version, and end")
	withoutEffectOfEtcd(f)
}

// withoutEffectOfEtcd adds flags of etcd without an effect, because this etcd has no other members and writes no
// files.
func withoutEffectOfEtcd(f *pflag.FlagSet) {
	const noFiles, alone = "has no effect: nothing is written to disk", "has no effect: there are no other members"
	for name, why := range map[string]string{
		"data-dir": noFiles, "wal-dir": noFiles, "snapshot-count": noFiles, "max-snapshots": noFiles, "max-wals": noFiles,
		"quota-backend-bytes": noFiles, "backend-batch-interval": noFiles, "backend-batch-limit": noFiles,
		"initial-cluster": alone, "initial-cluster-state": alone, "initial-cluster-token": alone,
		"heartbeat-interval": alone, "election-timeout": alone,
		"auto-compaction-mode":      "has no effect: API servers compact",
		"auto-compaction-retention": "has no effect: API servers compact",
		"logger":                    "has no effect: there is one log", "log-level": "has no effect: there is one log",
		"log-outputs": "has no effect: there is one log", "log-format": "has no effect: there is one log",
	} {
		f.String(name, "", why)
	}
	for name, why := range map[string]string{
		"unsafe-no-fsync": noFiles, "experimental-initial-corrupt-check": noFiles, "initial-election-tick-advance": alone,
		"pre-vote": alone, "strict-reconfig-check": alone, "enable-pprof": "has no effect: there are no profiles",
	} {
		f.Bool(name, false, why)
	}
}

// withTwoDashes returns arguments with two dashes before each flag: etcd accepts one, too.
func withTwoDashes(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		if strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && len(arg) > len("-h") {
			arg = "-" + arg
		}
		out[i] = arg
	}
	return out
}

// run serves until ctx ends.
func (p *etcdProgram) run(ctx context.Context, errOut io.Writer) error {
	log, _, err := logOptions{format: "text"}.logger(errOut)
	if err != nil {
		return err
	}
	p.options.Log = log
	listeners, err := listenAll(ctx, append(p.clientURLs[:len(p.clientURLs):len(p.clientURLs)], p.peerURLs...))
	if err != nil {
		return err
	}
	fmt.Fprintf(errOut, "This is Keelson in the place of etcd, for tests: everything is in memory and gone at the end.\n"+
		"Clients: %s\n", strings.Join(p.clientURLs, ","))
	s := memoryetcd.New(p.options)
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- s.Serve(l) }()
	}
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	s.Stop()
	return err
}

// listenAll opens a socket for each URL. If it fails, it closes those that it has opened.
func listenAll(ctx context.Context, urls []string) (listeners []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
		}
	}()
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" || u.Port() == "" {
			return listeners, fmt.Errorf("cannot listen on %q: Keelson in the place of etcd serves http://HOST:PORT only", text)
		}
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", u.Host)
		if err != nil {
			var op *net.OpError
			if errors.As(err, &op) {
				err = op.Err
			}
			return listeners, fmt.Errorf("cannot listen on %s: %w", text, err)
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}
