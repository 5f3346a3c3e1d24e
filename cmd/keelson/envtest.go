package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/server/version"
)

// newEnvtest returns the command about envtest, the test environment of controller-runtime.
func newEnvtest(out, errOut io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use: "envtest", Short: "Run the tests of controllers on Keelson",
		Example: "  keelson envtest install", Args: noArguments,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newEnvtestInstall(out, errOut))
	return c
}

// newEnvtestInstall returns the command that installs the programs that envtest starts.
func newEnvtestInstall(out, errOut io.Writer) *cobra.Command {
	o := assets{program: os.Executable}
	var format string
	c := &cobra.Command{
		Use: "install [DIR]", Short: "Install kube-apiserver, etcd and kubectl for envtest", Args: cobra.MaximumNArgs(1),
		Long: "Install writes the programs that envtest and similar test environments start:\n" +
			"kube-apiserver and etcd, which are this program under other names, and a link to\n" +
			"kubectl. Tests run on them with KUBEBUILDER_ASSETS=DIR. DIR is keelson/envtest\n" +
			"in the user's directory of cached data by default.",
		Example:      "  export KUBEBUILDER_ASSETS=$(keelson envtest install --print path)\n  go test ./...",
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(_ *cobra.Command, args []string) (err error) {
			if !slices.Contains([]string{"text", "path", "env"}, format) {
				return fmt.Errorf("--print must be text, path or env, not %q", format)
			}
			if o.dir, err = assetsDir(args); err != nil {
				return err
			}
			kubectl, err := o.install()
			if err != nil {
				return err
			}
			return o.print(out, errOut, format, kubectl)
		},
	}
	c.Flags().StringVar(&o.kubectl, "kubectl", "", "the kubectl to link to; by default the one that is found")
	c.Flags().BoolVar(&o.force, "force", false, "replace programs that are not Keelson's")
	c.Flags().StringVarP(
		&format, "print", "p", "text", "what is printed: text, the path of the directory, or env, a line for the shell",
	)
	return c
}

// assetsDir returns the absolute path of the directory in args, or of the default directory.
func assetsDir(args []string) (string, error) {
	if len(args) > 0 {
		return filepath.Abs(args[0])
	}
	cached, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("the directory has to be named: %w", err)
	}
	return filepath.Join(cached, "keelson", "envtest"), nil
}

// assets is a directory of programs for tests.
type assets struct {
	dir string
	// program returns the path of the program that replaces kube-apiserver and etcd.
	program func() (string, error)
	kubectl string // the value of --kubectl
	force   bool
}

// markerName is the name of a file in the directory. It has the version of Keelson from which the programs were
// installed.
const markerName = "keelson-version"

// install writes the programs, and returns the path of kubectl, "" if there is none.
func (a *assets) install() (kubectl string, err error) {
	if err := a.checkOthers(); err != nil {
		return "", err
	}
	program, err := a.program()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot create %s: %w", a.dir, withoutPath(err))
	}
	marker := []byte(version.Get().GitVersion + "\n")
	if err := os.WriteFile(filepath.Join(a.dir, markerName), marker, 0o644); err != nil {
		return "", err
	}
	server := a.file(kubeAPIServerName)
	if err := linkOrCopy(program, server); err != nil {
		return "", err
	}
	if err := linkOrCopy(server, a.file(etcdName)); err != nil {
		return "", err
	}
	return a.installKubectl()
}

// file returns the path of a program in the directory.
func (a *assets) file(name string) string { return filepath.Join(a.dir, executable(name)) }

// executable returns the file name of a program on this system.
func executable(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}
	return name
}

// checkOthers returns an error if the directory has programs that would be replaced and are not Keelson's.
func (a *assets) checkOthers() error {
	if _, err := os.Stat(filepath.Join(a.dir, markerName)); err == nil || a.force {
		return nil
	}
	for _, name := range []string{kubeAPIServerName, etcdName} {
		if _, err := os.Lstat(a.file(name)); err == nil {
			return fmt.Errorf("%s has a program %s that is not Keelson; name another directory, or replace it with --force",
				a.dir, name)
		}
	}
	return nil
}

// installKubectl creates a link to kubectl, unless the directory has kubectl and no other one was requested.
func (a *assets) installKubectl() (string, error) {
	to := a.file("kubectl")
	from := a.kubectl
	if from == "" {
		if target, err := filepath.EvalSymlinks(to); err == nil {
			return target, nil
		}
		from = findKubectl(a.dir)
	} else if _, err := os.Stat(from); err != nil {
		return "", fmt.Errorf("--kubectl: %w", err)
	}
	if from == "" {
		return "", nil
	}
	from, err := filepath.Abs(from)
	if err != nil {
		return "", err
	}
	return from, replaceFile(to, func(temporary string) error {
		if err := os.Remove(temporary); err != nil {
			return err
		}
		if os.Symlink(from, temporary) == nil {
			return nil
		}
		return copyFile(from, temporary) // not every system lets every user make links
	})
}

// findKubectl returns the path of a kubectl outside of dir. It looks on the PATH, in the directory in
// KUBEBUILDER_ASSETS, in the default directory of kubebuilder, and in the downloads of setup-envtest. It returns
// "" if there is none.
func findKubectl(dir string) string {
	if path, err := exec.LookPath("kubectl"); err == nil {
		return path
	}
	candidates := []string{os.Getenv("KUBEBUILDER_ASSETS"), "/usr/local/kubebuilder/bin"}
	data := os.Getenv("XDG_DATA_HOME")
	if home, err := os.UserHomeDir(); data == "" && err == nil {
		data = filepath.Join(home, ".local", "share")
	}
	// Glob only fails for a malformed pattern.
	downloaded, _ := filepath.Glob(filepath.Join(data, "kubebuilder-envtest", "k8s", "*-"+runtime.GOOS+"-"+runtime.GOARCH))
	slices.Sort(downloaded)
	slices.Reverse(downloaded)
	for _, candidate := range append(candidates, downloaded...) {
		path := filepath.Join(candidate, executable("kubectl"))
		if candidate == "" || candidate == dir {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// linkOrCopy makes to a hard link to the file from, or a copy on another file system. It replaces to atomically,
// also while a program with that name runs.
func linkOrCopy(from, to string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	return replaceFile(to, func(temporary string) error {
		if err := os.Remove(temporary); err != nil {
			return err
		}
		if os.Link(from, temporary) == nil {
			return nil
		}
		return copyFile(from, temporary)
	})
}

// copyFile copies a program.
func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// print prints what was installed.
func (a *assets) print(out, errOut io.Writer, format, kubectl string) error {
	if kubectl == "" {
		fmt.Fprintf(errOut, "There is no kubectl on the PATH, and none was linked. Tests that run kubectl need it: download it "+
			"from\nhttps://kubernetes.io/docs/tasks/tools and run this command again, with --kubectl FILE if it is not on the "+
			"PATH.\n")
	}
	export := fmt.Sprintf("export KUBEBUILDER_ASSETS='%s'\n", a.dir)
	var err error
	switch format {
	case "path":
		_, err = fmt.Fprintln(out, a.dir)
	case "env":
		_, err = fmt.Fprint(out, export)
	default:
		linked := ""
		if kubectl != "" {
			linked = "; kubectl is " + kubectl
		}
		_, err = fmt.Fprintf(out, "Keelson %s is installed as kube-apiserver and etcd in %s%s.\n"+
			"To run tests on it:\n\n    %s", version.Keelson, a.dir, linked, export)
	}
	return err
}
