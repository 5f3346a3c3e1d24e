package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server"
	"github.com/keelson-dev/keelson/internal/server/pace"
	"github.com/keelson-dev/keelson/internal/server/version"
)

// stopTime is the time limit of a stop, beyond the time for requests in flight.
const stopTime = 30 * time.Second

// printVersion prints the version for --version and --version=raw. The text is that of kube-apiserver, or, for
// --version of other commands, that of `keelson version`.
func printVersion(out io.Writer, asked string, kubeAPIServer bool) error {
	info := version.Get()
	line := version.Line(info)
	if kubeAPIServer {
		line = "Kubernetes " + info.GitVersion
	}
	switch asked {
	case "true":
		_, err := fmt.Fprintln(out, line)
		return err
	case "raw":
		_, err := fmt.Fprintf(out, "%#v\n", info)
		return err
	}
	return fmt.Errorf("--version must be true or raw, not %q: Keelson does not report other versions", asked)
}

// personality has the defaults of a command that serves, before its flags are read.
type personality struct {
	config config.Config
	// kubeAPIServer means that nothing is printed on standard output, and that completeAsKubeAPIServer sets
	// defaults.
	kubeAPIServer bool
	// standby makes the command follow another server before it serves; nil: it serves at once.
	standby *standbyFlags
}

// serveDefaults are the defaults of `keelson serve`.
func serveDefaults() personality {
	c := config.Default()
	c.Serving.Console = true // off for programs that embed a server, unless they set it
	return personality{config: c}
}

// shown returns the value of a flag as administrators may see it (/flagz).
func shown(f *pflag.Flag) string {
	if f.Name == "token" && f.Changed {
		return "[secret]"
	}
	return f.Value.String()
}

func newServe(out, errOut io.Writer, p personality) *cobra.Command {
	conf := p.config
	var logs logOptions
	var compatibility compatibilityFlags
	var showVersion, writeTo string
	var helpAll bool
	c := &cobra.Command{
		Args:         noArguments,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if helpAll {
				writeAllUsage(c, out)
				return nil
			}
			if c.Flags().Changed("version") && showVersion != "false" {
				return printVersion(out, showVersion, p.kubeAPIServer)
			}
			if err := compatibility.validate(); err != nil {
				return err
			}
			var err error
			applyEtcd(c.Flags(), &conf)
			if conf.Diagnostics.Log, conf.Diagnostics.SetVerbosity, err = logs.logger(errOut); err != nil {
				return err
			}
			for _, line := range append(deprecated(c.Flags()), withoutEffect(c.Flags())...) {
				conf.Diagnostics.Log.Warn(line)
			}
			conf.Diagnostics.Flags = map[string]string{}
			c.Flags().VisitAll(func(f *pflag.Flag) { conf.Diagnostics.Flags[f.Name] = shown(f) })
			options := server.Options{FlagGiven: c.Flags().Changed}
			if p.standby != nil {
				if options.Handover, err = p.standby.follow(c.Context(), &conf, options); err != nil || options.Handover == nil {
					return err
				}
			}
			if p.kubeAPIServer {
				completeAsKubeAPIServer(&conf)
				return serve(c.Context(), conf, options, func(*server.Server) error { return nil })
			}
			hello := out
			if logs.format == "json" {
				hello = lineLogger{conf.Diagnostics.Log}
			}
			leave := func() error { return nil }
			err = serve(c.Context(), conf, options, func(s *server.Server) (err error) {
				leave, err = welcome(c.Context(), hello, s, writeTo)
				return err
			})
			return errors.Join(err, leave())
		},
	}
	f := c.Flags()
	if !p.kubeAPIServer {
		writeKubeconfigFlag(f, &writeTo)
		f.BoolVar(&helpAll, "help-all", false, "show all flags, in the groups of kube-apiserver, and end")
	}
	configFlags(f, &conf)
	compatibility.add(f)
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
		&showVersion, "version", "false", "print the version, with that of Kubernetes whose API is served, and end; raw prints more",
	)
	f.Lookup("version").NoOptDefVal = "true"
	setHelp(c)
	return c
}

// completeAsKubeAPIServer sets what kube-apiserver chooses when flags are not given.
func completeAsKubeAPIServer(c *config.Config) {
	if c.Authorization.ConfigFile == "" && len(c.Authorization.Modes) == 0 {
		c.Authorization.Modes = []string{config.ModeAlwaysAllow}
	}
	if c.Network.ServiceClusterIPRange == "" {
		c.Network.ServiceClusterIPRange = config.Default().Network.ServiceClusterIPRange
		c.Diagnostics.Log.Warn("No CIDR for service cluster IPs specified. Default value which was " + c.Network.ServiceClusterIPRange +
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

// serve runs a server until ctx ends or the server fails. It calls started when the server serves requests. If
// started fails, serve stops the server.
func serve(
	ctx context.Context, c config.Config, o server.Options, started func(*server.Server) error,
) error {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	systemd, err := newNotifier(os.Getenv)
	if err != nil {
		return err
	}
	defer systemd.close()
	go pace.FreeWhenIdle(ctx)
	s, err := server.Start(ctx, c, o)
	if err != nil {
		return err
	}
	c.Diagnostics.Log.Info("serving securely", "url", s.URL(), "version", version.Get().GitVersion)
	failure := started(s)
	if failure == nil {
		systemd.send("READY=1")
		failure = attend(ctx, s, c.Diagnostics.Log, systemd, hangups)
	}
	systemd.send("STOPPING=1")
	stop, cancel := context.WithTimeout(
		context.Background(), c.Serving.Shutdown.Delay+max(c.Requests.Timeout, c.Serving.Shutdown.WatchGrace)+stopTime,
	)
	defer cancel()
	err = s.Stop(stop)
	if err == nil {
		c.Diagnostics.Log.Info("stopped")
	}
	if failure == nil {
		return err
	}
	if err != nil {
		c.Diagnostics.Log.Warn("the server did not stop cleanly", "error", err)
	}
	return failure
}
