// Package kubectlhistory is the command kubectl-history, a plug-in of kubectl. It shows who changed an object and
// its earlier states, and restores them. It is a client of the API in docs/history.md. The files unified.go,
// table.go and valuetext.go only format text; the others send requests and print.
package kubectlhistory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Name is the name of the command. kubectl finds a program with this name as its plug-in.
const Name = "kubectl-history"

// Options are the values that the program passes to the command.
type Options struct {
	Out, ErrOut io.Writer
	// Color enables colours.
	Color bool
	// Columns is the width of the terminal in characters, 0 if Out is not a terminal.
	Columns int
	// Now returns the time of the client, in its time zone.
	Now func() time.Time
	// Getenv returns an environment variable.
	Getenv func(string) string
	// NewCopy returns what reads copies for one subcommand. If it is nil, the subcommands have no flags of copies.
	NewCopy func() Copy
}

// New returns the command with its subcommands.
func New(o Options) *cobra.Command {
	c := &cobra.Command{
		Use: Name, Short: "Read the past of objects, and bring it back",
		Long: "Reads the history that a Keelson server keeps: who changed an object, and what\n" +
			"it was, also if it was deleted. It brings objects back. A program of the name\n" +
			"kubectl-history on the PATH (a link, for example) is a plug-in of kubectl:\n" +
			"kubectl history.",
		Example: "  keelson kubectl-history install\n" +
			"  kubectl history log deployment web",
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newLog(o), newSince(o), newGet(o), newDiff(o), newUndelete(o), newRevert(o), newBlameCommand(o), newWhy(o))
	return c
}

// newCommand returns a subcommand with the flags of the connection. run gets a session with the server.
func newCommand(o Options, c *cobra.Command, check func(args []string) error, run func(s *session, args []string) error) *cobra.Command {
	flags := connection{getenv: o.Getenv}
	c.SilenceUsage, c.SilenceErrors = true, true
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		defer func() { err = shown(err) }()
		if err := check(args); err != nil {
			return err
		}
		cl, namespace, err := flags.connect(c.Context())
		if err != nil {
			return err
		}
		defer cl.http.CloseIdleConnections()
		s := &session{Options: o, ctx: c.Context(), client: cl, namespace: namespace}
		cl.warn = func(text string) { s.warnf("Warning: %s", printable(text)) }
		if s.catalog, err = cl.discover(c.Context()); err != nil {
			return err
		}
		return run(s, args)
	}
	connectionFlags(c.Flags(), &flags)
	return c
}

func connectionFlags(f *pflag.FlagSet, c *connection) {
	f.StringVarP(&c.namespace, "namespace", "n", "", "namespace of the objects; by default that of the context")
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig to use; by default those that kubectl uses")
	f.StringVar(&c.context, "context", "", "context of the kubeconfig; by default the current one")
}

// asOfUsage describes the values of --as-of.
const asOfUsage = "a time (RFC 3339), a duration before now such as 1h30m, or a resourceVersion"

// session is the connection of one command with a server.
type session struct {
	Options
	ctx       context.Context
	client    *client
	catalog   catalog
	namespace string
	copy      *openCopy // the copy from which old states are read; nil: they are read from the server
}

// namespaceOf returns the namespace for requests for r, "" if r is cluster-scoped.
func (s *session) namespaceOf(r resource) string {
	if r.Namespaced {
		return s.namespace
	}
	return ""
}

// printf writes to standard output.
func (s *session) printf(format string, args ...any) { fmt.Fprintf(s.Out, format, args...) }

// warnf writes a line to standard error.
func (s *session) warnf(format string, args ...any) { fmt.Fprintf(s.ErrOut, format+"\n", args...) }

// checkOutput returns an error if a value of --output is not in allowed; "" is always allowed.
func checkOutput(format string, allowed ...string) error {
	for _, a := range append(allowed, "") {
		if format == a {
			return nil
		}
	}
	return fmt.Errorf("--output must be %s, not %q", strings.Join(allowed, " or "), format)
}

// explain adds the time to the error of a read of an object that did not exist then.
func explain(err error, asOf string) error {
	if kerrors.IsNotFound(err) && asOf != "" {
		return fmt.Errorf("%w as of %s", err, asOf)
	}
	return err
}

// errNoAsOf is the error of a command that needs a time.
var errNoAsOf = errors.New("say as of when with --as-of: " + asOfUsage)
