package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/internal/server"
	"github.com/keelson-dev/keelson/internal/server/pace"
	"github.com/keelson-dev/keelson/internal/server/version"
)

// stopTime limits an orderly stop, in addition to the time that requests in flight may take.
const stopTime = 30 * time.Second

// printVersion prints the version of the API as kube-apiserver does, for --version and --version=raw.
func printVersion(out io.Writer, asked string) error {
	info := version.Get()
	switch asked {
	case "true":
		_, err := fmt.Fprintf(out, "Kubernetes %s\n", info.GitVersion)
		return err
	case "raw":
		_, err := fmt.Fprintf(out, "%#v\n", info)
		return err
	}
	return fmt.Errorf("--version must be true or raw, not %q: Keelson does not report other versions", asked)
}

// personality is what a command does without flags.
type personality struct {
	config server.Config
	// kubeAPIServer prints nothing on standard output, and has the authorization mode of kube-apiserver.
	kubeAPIServer bool
}

// serveDefaults are the defaults of `keelson serve`.
func serveDefaults() personality { return personality{config: server.DefaultConfig()} }

func newServe(out, errOut io.Writer, p personality) *cobra.Command {
	config := p.config
	minTimeout := int(config.MinRequestTimeout / time.Second)
	var logs logOptions
	var compatibility compatibilityFlags
	var shown metricsFlags
	var showVersion, writeTo string
	c := &cobra.Command{
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("version") && showVersion != "false" {
				return printVersion(out, showVersion)
			}
			if err := compatibility.validate(); err != nil {
				return err
			}
			var err error
			if config.Metrics, err = shown.options(); err != nil {
				return err
			}
			config.MinRequestTimeout = time.Duration(minTimeout) * time.Second
			applyEtcd(c.Flags(), &config)
			applyAuthentication(c.Flags(), &config.Authentication)
			applyAuthorization(c.Flags(), &config.Authorization)
			if config.Log, config.SetVerbosity, err = logs.logger(errOut); err != nil {
				return err
			}
			for _, line := range withoutEffect(c.Flags()) {
				config.Log.Warn(line)
			}
			config.Flags = map[string]string{}
			c.Flags().VisitAll(func(f *pflag.Flag) { config.Flags[f.Name] = f.Value.String() })
			if p.kubeAPIServer {
				completeAsKubeAPIServer(&config)
				return serve(c.Context(), config, func(*server.Server) error { return nil })
			}
			return serve(c.Context(), config, func(s *server.Server) error {
				return welcome(c.Context(), out, s, writeTo)
			})
		},
	}
	f := c.Flags()
	if !p.kubeAPIServer {
		writeKubeconfigFlag(f, &writeTo)
	}
	storageFlags(f, &config)
	servingFlags(f, &config)
	httpsFlags(f, &config.Serving)
	compatibility.add(f)
	shown.add(f)
	networkFlags(f, &config)
	connectionFlags(f, &config.Connections)
	controllerFlags(f, &config)
	f.StringVar(
		&config.TokenAuthFile, "token-auth-file", "", "CSV file of static tokens: token,user,uid,\"group1,group2\"",
	)
	f.StringVar(
		&config.ClientCAFile, "client-ca-file", "",
		"PEM file of the authorities whose client certificates are accepted, instead of the server's own",
	)
	authenticationFlags(f, &config.Authentication)
	authorizationFlags(f, &config.Authorization)
	admissionFlags(f, &config.Admission)
	auditFlags(f, &config.Audit)
	filterFlags(f, &config.Filters)
	controlPlaneFlags(f, &config.ControlPlane)
	peerFlags(f, &config.Peers)
	f.StringArrayVar(
		&config.FeatureGates, "feature-gates", nil, "Name=true,Name=false,... of Kubernetes' feature gates; may be repeated",
	)
	f.StringArrayVar(
		&config.RuntimeConfig, "runtime-config", nil,
		"built-in versions and resources that are served or not: GROUP/VERSION=true,GROUP/VERSION/RESOURCE=false,... and "+
			"api/all, api/ga, api/beta, api/alpha for all versions, GA, beta and alpha ones; may be repeated",
	)
	f.IntVar(
		&minTimeout, "min-request-timeout", minTimeout,
		"seconds that a watch without a timeout of its own lasts at least; it lasts up to twice that",
	)
	f.IntVarP(
		&logs.verbosity, "v", "v", 0, "how much is logged: 0 what an operator should know, 4 for debugging, 8 everything",
	)
	f.StringVar(
		&logs.files, "vmodule", "",
		"verbosities of source files, as pattern=N,...: overrides --v for the files that match; only with the format text",
	)
	f.StringVar(&logs.format, "log-format", "text", "text or json")
	f.StringVar(&logs.format, "logging-format", "text", "the same as --log-format")
	f.StringVar(
		&showVersion, "version", "false", "print the version of Kubernetes whose API is served, and end; raw prints more",
	)
	f.Lookup("version").NoOptDefVal = "true"
	groupHelp(c)
	return c
}

// completeAsKubeAPIServer sets what kube-apiserver chooses when flags are not given.
func completeAsKubeAPIServer(c *server.Config) {
	if c.Authorization.ConfigFile == "" && len(c.Authorization.Modes) == 0 {
		c.Authorization.Modes = []string{server.ModeAlwaysAllow}
	}
	if c.ServiceClusterIPRange == "" {
		c.ServiceClusterIPRange = server.DefaultConfig().ServiceClusterIPRange
		c.Log.Warn("No CIDR for service cluster IPs specified. Default value which was " + c.ServiceClusterIPRange +
			" is deprecated and will be removed in future releases. Please specify it using --service-cluster-ip-range on " +
			"kube-apiserver.")
	}
}

// attend reloads files at each hangup and reports to systemd that the server is alive, until ctx ends or the server fails.
func attend(ctx context.Context, s *server.Server, log *slog.Logger, systemd *notifier, hangups <-chan os.Signal) error {
	watchdog := systemd.watchdog()
	defer watchdog.Stop()
	for {
		select {
		case <-ctx.Done():
			log.Info("stopping")
			return nil
		case failure := <-s.Failed():
			return failure
		case <-hangups:
			log.Info("looking for changes of configured files")
			systemd.send("RELOADING=1" + monotonic())
			s.Reload()
			systemd.send("READY=1")
		case <-watchdog.C:
			if err := s.Alive(ctx); err != nil {
				log.Error("systemd is not told that the server is alive", "error", err)
				continue
			}
			systemd.send("WATCHDOG=1")
		}
	}
}

// serve runs a server until ctx ends or the server fails. It calls started when the server serves requests; an error
// ends the server.
func serve(ctx context.Context, config server.Config, started func(*server.Server) error) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	systemd, err := newNotifier(os.Getenv)
	if err != nil {
		return err
	}
	defer systemd.close()
	pace.Start(os.Getenv)
	go pace.FreeWhenIdle(ctx)
	s, err := server.Start(ctx, config)
	if err != nil {
		return err
	}
	config.Log.Info("serving securely", "url", s.URL(), "version", version.Get().GitVersion)
	failure := started(s)
	if failure == nil {
		systemd.send("READY=1")
		failure = attend(ctx, s, config.Log, systemd, hangups)
	}
	systemd.send("STOPPING=1")
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
