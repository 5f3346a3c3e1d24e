package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/version"
)

// newCommand returns the command with its subcommands. Without a subcommand it serves.
func newCommand(out, errOut io.Writer) *cobra.Command {
	root := newServe(out, errOut, serveDefaults())
	root.Use = "keelson"
	root.Short = "A Kubernetes API server in one binary"
	root.Long = "Keelson serves the Kubernetes API from an embedded store.\nWithout a subcommand it does what `keelson serve` does."
	root.SetOut(out)
	root.SetErr(errOut)
	serve := &cobra.Command{
		Use: "serve", Short: "Serve the API", Args: root.Args, RunE: root.RunE,
		SilenceUsage: root.SilenceUsage, SilenceErrors: root.SilenceErrors,
	}
	serve.Flags().AddFlagSet(root.Flags())
	groupHelp(serve)
	root.AddCommand(serve, newKubeAPIServer(out, errOut), newSnapshot(out, errOut), newCheck(out, errOut), newVersion(out),
		newEnvtest(out, errOut), newCompletion(out), newMan())
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}

// kubeAPIServerName is the name of the program, and of the subcommand, that has the defaults of kube-apiserver.
const kubeAPIServerName = "kube-apiserver"

// newKubeAPIServer returns the command that replaces kube-apiserver.
func newKubeAPIServer(out, errOut io.Writer) *cobra.Command {
	standard := config.KubeAPIServer()
	// completeAsKubeAPIServer chooses these when their flags are not given.
	standard.Authorization.Modes, standard.Network.ServiceClusterIPRange = nil, ""
	c := newServe(out, errOut, personality{config: standard, kubeAPIServer: true})
	c.Use = kubeAPIServerName
	c.Short = "Serve the API with the defaults of kube-apiserver"
	c.Long = "Takes the place of kube-apiserver: with the same flags and defaults, and without credentials and files\n" +
		"that the flags do not name. A program of the name kube-apiserver (a link, for example) does the same."
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%q does not take any arguments, got %q", kubeAPIServerName, args)
		}
		return nil
	}
	c.SetOut(out)
	c.SetErr(errOut)
	c.CompletionOptions.DisableDefaultCmd = true
	return c
}

func newVersion(out io.Writer) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(*cobra.Command, []string) error {
			info := version.Get()
			switch format {
			case "":
				_, err := fmt.Fprintln(out, version.Line(info))
				return err
			case "json":
				e := json.NewEncoder(out)
				e.SetIndent("", "  ")
				return e.Encode(struct {
					Keelson    string `json:"keelson"`
					Kubernetes any    `json:"kubernetes"`
				}{version.Keelson, info})
			}
			return errors.New("--output must be json")
		},
	}
	c.Flags().StringVarP(&format, "output", "o", "", "json, or nothing for one line")
	return c
}
