package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/cmd/keelson/kubectlhistory"
)

// kubectlCompleteName is the name of the program by which kubectl completes the arguments of `kubectl history`.
const kubectlCompleteName = "kubectl_complete-history"

// newKubectlHistory returns the command about the past of objects.
func newKubectlHistory(out, errOut io.Writer) *cobra.Command {
	c := kubectlhistory.New(kubectlhistory.Options{
		Out: out, ErrOut: errOut, Color: isTerminal(out) && os.Getenv("NO_COLOR") == "", Columns: terminalWidth(out),
		Getenv: os.Getenv, Now: time.Now,
		NewCopy: func() kubectlhistory.Copy { return &copyReader{copyRestore: copyRestore{errOut: errOut}} },
	})
	c.Args = noArguments
	c.AddCommand(newPluginInstall(out, errOut))
	return c
}

// newPluginInstall returns the command that makes links to the program, by the names that kubectl searches for.
func newPluginInstall(out, errOut io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use: "install [DIR]", Short: "Make `kubectl history` work: links to this program", Args: cobra.MaximumNArgs(1),
		Long: "Install makes links to this program, by which kubectl finds it as its plug-in\n" +
			"and completes its arguments. Without DIR they are beside the program. A file\n" +
			"that is there and is no Keelson is not replaced.",
		Example:      "  keelson kubectl-history install\n  keelson kubectl-history install ~/bin",
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(_ *cobra.Command, args []string) error {
			program, err := os.Executable()
			if err == nil {
				program, err = filepath.EvalSymlinks(program) // a link that is replaced must not point to itself
			}
			if err != nil {
				return err
			}
			dir := filepath.Dir(program)
			if len(args) > 0 {
				dir = args[0]
			}
			if dir, err = filepath.Abs(dir); err != nil {
				return err
			}
			return installPlugin(program, dir, filepath.SplitList(os.Getenv("PATH")), out, errOut)
		},
	}
	return c
}

// installPlugin makes the links in dir, and prints the result. path has the directories of the variable PATH.
func installPlugin(program, dir string, path []string, out, errOut io.Writer) error {
	names := []string{kubectlhistory.Name, kubectlCompleteName}
	for _, name := range names {
		if err := checkPluginFile(program, filepath.Join(dir, executable(name))); err != nil {
			return err
		}
	}
	for _, name := range names {
		err := replaceFile(filepath.Join(dir, executable(name)), func(temporary string) error {
			if err := os.Remove(temporary); err != nil {
				return err
			}
			if os.Symlink(program, temporary) == nil {
				return nil
			}
			return copyFile(program, temporary) // not every system lets every user make links
		})
		if err != nil {
			return fmt.Errorf("%w; name a directory of yours that is on the PATH: keelson kubectl-history install DIR", err)
		}
	}
	fmt.Fprintf(out, "kubectl finds %s in %s: kubectl history --help\n", strings.Join(names, " and "), dir)
	if !slices.Contains(path, dir) {
		fmt.Fprintf(errOut, "%s is not on the PATH, so kubectl does not look there:\n\n    export PATH=\"$PATH:%s\"\n", dir, dir)
	}
	return nil
}

// checkPluginFile returns an error if file exists and installPlugin must not replace it. It may replace a link to
// a program with the same name as this one, and a copy of this program.
func checkPluginFile(program, file string) error {
	info, err := os.Lstat(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSymlink != 0 {
		if target, err := os.Readlink(file); err == nil && filepath.Base(target) == filepath.Base(program) {
			return nil
		}
	}
	if runtime.GOOS == "windows" {
		return nil // a copy of an earlier version cannot be distinguished from another program
	}
	return fmt.Errorf("%s exists and is not a link to %s; remove it, or name another directory", file, filepath.Base(program))
}

// newKubectlPlugin returns the same command for a program of its own, which kubectl runs as its plug-in.
func newKubectlPlugin(out, errOut io.Writer) *cobra.Command {
	c := newKubectlHistory(out, errOut)
	c.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl history"}
	c.SetOut(out)
	c.SetErr(errOut)
	c.CompletionOptions.DisableDefaultCmd = true
	setHelp(c)
	return c
}
