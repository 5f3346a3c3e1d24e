package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
)

// newKubeconfig returns the command that makes kubeconfigs for other people.
func newKubeconfig(out, errOut io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use: "kubeconfig", Short: "Make kubeconfigs for other people", Args: noArguments,
		Example:      "  keelson kubeconfig create --user anna --group developers -o anna.kubeconfig",
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newKubeconfigCreate(out, errOut))
	return c
}

// Lifetimes of certificates for other people.
const (
	standardTTL = 30 * 24 * time.Hour
	longestTTL  = 365 * 24 * time.Hour
)

// userCredentials are the flags of `keelson kubeconfig create`.
type userCredentials struct {
	dataDir, server, output string
	user                    string
	groups                  []string
	ttl                     time.Duration
	allowLong, force        bool
}

func newKubeconfigCreate(out, errOut io.Writer) *cobra.Command {
	u := userCredentials{dataDir: config.Default().Storage.DataDir, ttl: standardTTL}
	c := &cobra.Command{
		Use: "create", Short: "Make a kubeconfig with a client certificate", Args: noArguments,
		Long: "Create makes a key and a client certificate for a person or program, signed by\n" +
			"the authority in the data directory, and prints a kubeconfig with them. The\n" +
			"server may run or not; it is not asked. The user has no rights but those that\n" +
			"roles give to the name or to one of the groups.\n\n" +
			"A certificate cannot be taken back: it is valid until it ends. Therefore the\n" +
			"group system:masters is refused, whose rights no role limits. For an\n" +
			"administrator bind the user to the ClusterRole cluster-admin: a binding can be\n" +
			"deleted.",
		Example: "  keelson kubeconfig create --user anna --group developers -o anna.kubeconfig\n" +
			"  kubectl create rolebinding developers --clusterrole=edit \\\n      --group=developers --namespace=shop",
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(*cobra.Command, []string) error { return u.write(out, errOut) },
	}
	f := c.Flags()
	f.StringVar(&u.user, "user", "", "name of the user")
	f.StringSliceVar(&u.groups, "group", nil, "a group of the user; may be repeated")
	f.DurationVar(&u.ttl, "ttl", u.ttl, "how long the certificate is valid, at most a year")
	f.BoolVar(&u.allowLong, "allow-long-ttl", false, "accept a --ttl of more than a year, up to the end of the authority")
	f.StringVar(
		&u.server, "server", "",
		"URL of the server; by default that for other machines in the administrator's kubeconfig, or else that for this one",
	)
	f.StringVar(&u.dataDir, "data-dir", u.dataDir, dataDirUsage)
	f.StringVarP(&u.output, "output", "o", "-", "file to write, with the mode 0600; - is standard output")
	f.BoolVar(&u.force, "force", false, forceUsage)
	return c
}

// write makes the kubeconfig and writes it to the file, or to out.
func (u *userCredentials) write(out, errOut io.Writer) error {
	if err := u.validate(); err != nil {
		return err
	}
	admin, err := readOwnKubeconfig(datadir.Kubeconfig(u.dataDir))
	if err != nil {
		return err
	}
	k := certs.Kubeconfig{Server: u.server, CA: admin.CA, User: u.user}
	if k.Server == "" {
		k.Server, k.ServerName = admin.Server, admin.ServerName
	}
	k.Certificate, err = certs.IssueClient(datadir.Certificates(u.dataDir), certs.Client{
		User: u.user, Groups: u.groups, Lifetime: u.ttl, Now: time.Now(),
	})
	if err != nil {
		return err
	}
	if u.output == "-" {
		_, err = out.Write(k.Bytes())
	} else {
		err = replaceFile(u.output, func(temporary string) error {
			const mode = 0o600 // the temporary file already has this mode
			return os.WriteFile(temporary, k.Bytes(), mode)
		})
	}
	if err != nil {
		return err
	}
	pair, err := k.Certificate.TLS()
	if err != nil {
		return err
	}
	fmt.Fprintf(errOut, "The certificate of %s for %s is valid until %s.\n",
		u.user, k.Server, pair.Leaf.NotAfter.Format(time.RFC3339))
	if address, err := url.Parse(k.Server); err == nil && net.ParseIP(address.Hostname()).IsLoopback() {
		fmt.Fprintln(errOut, "Other machines do not reach this address; name another one with --server.")
	}
	return nil
}

// validate returns an error if the flags are invalid.
func (u *userCredentials) validate() error {
	names := append([]string{u.user}, u.groups...)
	unprintable := func(name string) bool {
		return !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl)
	}
	switch {
	case u.user == "":
		return errors.New("--user must name the user")
	case slices.Contains(u.groups, ""):
		return errors.New("--group must not be empty")
	case slices.ContainsFunc(names, unprintable):
		return errors.New("names of users and groups must be valid UTF-8 without control characters")
	case slices.Contains(u.groups, certs.AdminGroup):
		return fmt.Errorf("--group must not be %s: its members may do everything, and the certificate could not be taken back; "+
			"bind the user to the ClusterRole cluster-admin instead", certs.AdminGroup)
	case u.ttl <= 0:
		return errors.New("--ttl must be positive")
	case u.ttl > longestTTL && !u.allowLong:
		return fmt.Errorf("--ttl must be at most a year (%s), unless --allow-long-ttl is given: a certificate cannot be taken back",
			longestTTL)
	case u.server != "" && !isServerURL(u.server):
		return fmt.Errorf("--server must be a URL that begins with https:// and has a host, not %q", u.server)
	}
	if u.output == "-" {
		return nil
	}
	return checkAbsent(u.output, u.force)
}

// isServerURL reports whether a text is the URL of a server with TLS.
func isServerURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Host != ""
}

// readOwnKubeconfig returns the cluster in the kubeconfig that a server has written. It prefers the one for other
// machines. It fails if the server accepts no certificates of its own authority.
func readOwnKubeconfig(path string) (clusterConfig, error) {
	content, err := filewatch.ReadFile(path)
	if err != nil {
		return clusterConfig{}, fmt.Errorf("cannot read %s, which the server writes at each start: %w", path, withoutPath(err))
	}
	var k kubeconfigFile
	if err := yaml.Unmarshal(content, &k); err != nil {
		return clusterConfig{}, fmt.Errorf("the kubeconfig %s: %w", path, err)
	}
	found, user, err := k.current()
	if err != nil {
		return clusterConfig{}, fmt.Errorf("the kubeconfig %s: %w", path, err)
	}
	if len(user.Cert) == 0 {
		return clusterConfig{}, errors.New("the server does not accept certificates of the authority in its data directory, " +
			"because --client-ca-file names others; make the certificate with one of those")
	}
	for _, c := range k.Clusters {
		if c.Name == certs.RemoteClusterName {
			found = c.Cluster
		}
	}
	return found, nil
}
