package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/keelson-dev/keelson/server"
	"github.com/keelson-dev/keelson/server/pace"
)

// stopTime limits an orderly stop, in addition to the time that requests in flight may take.
const stopTime = 30 * time.Second

// logOptions configure what is logged and in which format.
type logOptions struct {
	verbosity int
	format    string
}

func newServe(out, errOut io.Writer) *cobra.Command {
	config := server.DefaultConfig()
	minTimeout := int(config.MinRequestTimeout / time.Second)
	var logs logOptions
	c := &cobra.Command{
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			config.MinRequestTimeout = time.Duration(minTimeout) * time.Second
			applyEtcd(c.Flags(), &config)
			applyAuthentication(c.Flags(), &config.Authentication)
			applyAuthorization(c.Flags(), &config.Authorization)
			var err error
			if config.Log, config.SetVerbosity, err = logs.logger(errOut); err != nil {
				return err
			}
			config.Flags = map[string]string{}
			c.Flags().VisitAll(func(f *pflag.Flag) { config.Flags[f.Name] = f.Value.String() })
			return serve(c.Context(), config, out)
		},
	}
	f := c.Flags()
	f.StringVar(
		&config.DataDir, "data-dir", config.DataDir, "directory of the data, the server's certificates and its kubeconfig",
	)
	f.StringVar(
		&config.Storage, "storage", config.Storage,
		"where objects are kept: embedded (in the data directory), memory (gone at the end) or etcd",
	)
	etcdFlags(f, &config.Etcd)
	f.DurationVar(
		&config.HistoryWindow, "history-window", config.HistoryWindow,
		"how long what was changed or deleted can still be read and watched; then it is compacted",
	)
	f.StringVar(&config.BindAddress, "bind-address", config.BindAddress, "IP address to listen on")
	f.IntVar(&config.SecurePort, "secure-port", config.SecurePort, "port to serve HTTPS on; 0 picks a free one")
	f.StringVar(
		&config.TokenAuthFile, "token-auth-file", "", "CSV file of static tokens: token,user,uid,\"group1,group2\"",
	)
	f.StringVar(
		&config.ClientCAFile, "client-ca-file", "",
		"PEM file of authorities whose client certificates are accepted, beside the server's own",
	)
	authenticationFlags(f, &config.Authentication)
	authorizationFlags(f, &config.Authorization)
	admissionFlags(f, &config.Admission)
	auditFlags(f, &config.Audit)
	filterFlags(f, &config.Filters)
	controlPlaneFlags(f, &config.ControlPlane)
	f.StringVar(
		&config.EgressSelectorConfigFile, "egress-selector-config-file", "",
		"file of the EgressSelectorConfiguration that says through which proxies the server opens connections to webhooks, issuers and the like",
	)
	f.StringVar(
		&config.TLSCertFile, "tls-cert-file", "",
		"PEM file of the serving certificate and its chain, instead of the server's own",
	)
	f.StringVar(&config.TLSPrivateKeyFile, "tls-private-key-file", "", "PEM file of the key of --tls-cert-file")
	f.StringVar(
		&config.ServiceClusterIPRange, "service-cluster-ip-range", config.ServiceClusterIPRange,
		"range of service addresses in CIDR notation; two, separated by a comma, for dual stack",
	)
	f.StringVar(
		&config.ServiceNodePortRange, "service-node-port-range", config.ServiceNodePortRange,
		"range of ports that Services get on every node: first-last, both inclusive",
	)
	f.BoolVar(
		&config.AggregatorRouting, "enable-aggregator-routing", false,
		"call webhooks that are Services at their endpoints rather than at the cluster IP, for machines without kube-proxy",
	)
	f.StringVar(
		&config.EncryptionProviderConfig, "encryption-provider-config", "",
		"file of the EncryptionConfiguration that says how objects are encrypted in the store",
	)
	f.BoolVar(
		&config.EncryptionReload, "encryption-provider-config-automatic-reload", false,
		"follow changes of --encryption-provider-config",
	)
	f.StringArrayVar(
		&config.FeatureGates, "feature-gates", nil, "Name=true,Name=false,... of Kubernetes' feature gates; may be repeated",
	)
	f.DurationVar(
		&config.RequestTimeout, "request-timeout", config.RequestTimeout,
		"how long a request may take that is not long-running",
	)
	f.IntVar(
		&minTimeout, "min-request-timeout", minTimeout,
		"seconds that a watch without a timeout of its own lasts at least; it lasts up to twice that",
	)
	f.IntVar(
		&config.MaxRequestsInFlight, "max-requests-inflight", config.MaxRequestsInFlight,
		"reading requests served at a time; 0 is no limit",
	)
	f.IntVar(
		&config.MaxMutatingRequestsInFlight, "max-mutating-requests-inflight", config.MaxMutatingRequestsInFlight,
		"writing requests served at a time; 0 is no limit",
	)
	f.DurationVar(
		&config.ShutdownDelay, "shutdown-delay-duration", 0,
		"how long to go on serving, with /readyz failing, when told to stop",
	)
	f.DurationVar(&config.LivezGracePeriod, "livez-grace-period", 0, "how long after its start /livez does not fail")
	f.BoolVar(&config.Profiling, "profiling", config.Profiling, "serve /debug/pprof")
	f.BoolVar(
		&config.DefaultServiceAccounts, "default-service-accounts", config.DefaultServiceAccounts,
		"make the service account \"default\" of each new namespace, as kube-controller-manager does",
	)
	f.BoolVar(
		&config.QuotaUsage, "quota-usage", config.QuotaUsage,
		"count what objects use of resource quotas, as kube-controller-manager does",
	)
	f.BoolVar(
		&config.PolicyTypeChecks, "policy-type-checks", config.PolicyTypeChecks,
		"check the types in the expressions of validating admission policies, as kube-controller-manager does",
	)
	f.IntVarP(
		&logs.verbosity, "v", "v", 0, "how much is logged: 0 what an operator should know, 4 for debugging, 8 everything",
	)
	f.StringVar(&logs.format, "log-format", "text", "text or json")
	return c
}

// logger returns the log. It also makes klog, which the Kubernetes libraries use, write to it. The function sets
// the verbosity of both.
func (o logOptions) logger(out io.Writer) (*slog.Logger, func(int) error, error) {
	var level slog.LevelVar
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	setVerbosity := func(v int) error {
		if v < 0 {
			return errors.New("the verbosity must not be negative")
		}
		level.Set(slog.Level(-v))
		return flags.Set("v", strconv.Itoa(v))
	}
	if err := setVerbosity(o.verbosity); err != nil {
		return nil, nil, fmt.Errorf("--v: %w", err)
	}
	options := &slog.HandlerOptions{Level: &level}
	var handler slog.Handler
	switch o.format {
	case "text":
		handler = slog.NewTextHandler(out, options)
	case "json":
		handler = slog.NewJSONHandler(out, options)
	default:
		return nil, nil, fmt.Errorf("--log-format must be text or json, not %q", o.format)
	}
	log := slog.New(handler)
	klog.SetSlogLogger(log)
	slog.SetDefault(log)
	return log, setVerbosity, nil
}

// serve runs a server until ctx ends or the server fails.
func serve(ctx context.Context, config server.Config, out io.Writer) error {
	pace.Start(os.Getenv)
	go pace.FreeWhenIdle(ctx)
	s, err := server.Start(ctx, config)
	if err != nil {
		return err
	}
	printBanner(out, s)
	var failure error
	select {
	case <-ctx.Done():
		config.Log.Info("stopping")
	case failure = <-s.Failed():
	}
	stop, cancel := context.WithTimeout(
		context.Background(), config.ShutdownDelay+max(config.RequestTimeout, config.Filters.ShutdownWatchGrace)+stopTime,
	)
	defer cancel()
	err = s.Stop(stop)
	if failure == nil {
		return err
	}
	if err != nil {
		config.Log.Warn("the end was not an orderly one", "error", err)
	}
	return failure
}

// printBanner prints the URL of the server and the next commands to type.
func printBanner(out io.Writer, s *server.Server) {
	fmt.Fprintf(out, "Keelson serves the Kubernetes API at %s\n", s.URL())
	fmt.Fprintf(out, "Its kubeconfig, for an administrator, is %s\n", s.KubeconfigPath())
	fmt.Fprintf(out, "Try: kubectl --kubeconfig %s get namespaces\n", s.KubeconfigPath())
}
