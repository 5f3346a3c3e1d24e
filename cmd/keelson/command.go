package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/version"
)

// newCommand returns the command with its subcommands. Without a subcommand it serves.
func newCommand(out, errOut io.Writer) *cobra.Command {
	root := newServe(out, errOut, serveDefaults())
	root.Use = "keelson [COMMAND]"
	root.Short = "A Kubernetes API server in one binary"
	root.Long = "Keelson serves the Kubernetes API from an embedded store. Without a command it\n" +
		"does what `keelson serve` does."
	root.Example = "  keelson                      serve on 127.0.0.1:6443, from keelson-data\n" +
		"  keelson --write-kubeconfig   the same, and kubectl uses this server\n" +
		"  keelson snapshot save FILE   save the data to a file"
	root.SetOut(out)
	root.SetErr(errOut)
	serve := &cobra.Command{
		Use: "serve", Short: "Serve the API", Args: root.Args, RunE: root.RunE,
		Long: "Serve runs the API server until it is told to stop. At the first start it makes\n" +
			"the data directory with certificates and the kubeconfig of an administrator.",
		Example: "  keelson serve --data-dir /var/lib/keelson --write-kubeconfig\n" +
			"  keelson serve --storage memory --data-dir ''\n" +
			"  keelson serve --bind-address 0.0.0.0 --external-hostname api.example.com",
		SilenceUsage: root.SilenceUsage, SilenceErrors: root.SilenceErrors,
	}
	serve.Flags().AddFlagSet(root.Flags())
	setHelp(serve)
	root.AddCommand(serve, newKubeAPIServer(out, errOut), newSnapshot(out, errOut), newBackup(out, errOut), newRestoreCopy(out, errOut),
		newStandby(out, errOut), newPromote(out), newMembers(out),
		newCheck(out, errOut), newRepair(out), newPurge(out), newConsole(os.Stdin, out, errOut), newKubeconfig(out, errOut),
		newKubectlHistory(out, errOut), newVersion(out),
		newEnvtest(out, errOut), newCompletion(out), newMan())
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}

// kubeAPIServerName is the name of a subcommand with the defaults of kube-apiserver. A program of this name does
// the same.
const kubeAPIServerName = "kube-apiserver"

// newKubeAPIServer returns the command that replaces kube-apiserver.
func newKubeAPIServer(out, errOut io.Writer) *cobra.Command {
	standard := config.KubeAPIServer()
	// If their flags are not given, completeAsKubeAPIServer sets these.
	standard.Authorization.Modes, standard.Network.ServiceClusterIPRange = nil, ""
	c := newServe(out, errOut, personality{config: standard, kubeAPIServer: true})
	c.Use = kubeAPIServerName
	c.Short = "Serve the API with the defaults of kube-apiserver"
	c.Long = "Takes the place of kube-apiserver: with the same flags and defaults, and without\n" +
		"credentials and files that the flags do not name. A program of the name\n" +
		"kube-apiserver (a link, for example) does the same."
	c.Example = "  keelson kube-apiserver --etcd-servers=http://127.0.0.1:2379 \\\n" +
		"      --service-account-issuer=https://kubernetes.default.svc \\\n" +
		"      --service-account-key-file=sa.pub --service-account-signing-key-file=sa.key"
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
		Use: "version", Short: "Print the version", Args: noArguments,
		Long: "Version prints the version of Keelson, that of Kubernetes whose API it serves,\n" +
			"and the commit that it was built from.",
		Example:      "  keelson version -o json",
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
			return fmt.Errorf("--output must be json, not %q", format)
		},
	}
	c.Flags().StringVarP(&format, "output", "o", "", "json, or nothing for one line")
	return c
}
