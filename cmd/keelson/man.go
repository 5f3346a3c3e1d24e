package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/cmd/keelson/kubectlhistory"
	"github.com/keelson-dev/keelson/internal/server/version"
)

// newMan returns the command that writes the manual pages, for packagers.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the manual pages to a directory", SilenceUsage: true, SilenceErrors: true,
		Long:    "Man writes a manual page for each command to DIR: keelson.1, keelson-serve.1 and\nso on.",
		Example: "  keelson man /usr/local/share/man/man1",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name the directory to write to")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writeManPages(c.Root(), args[0])
		},
	}
}

// writeManPages writes the pages of a command and of those below it.
func writeManPages(c *cobra.Command, dir string) error {
	var page bytes.Buffer
	manPage(&page, c)
	if err := os.WriteFile(filepath.Join(dir, manName(c)+".1"), page.Bytes(), 0o644); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		if err := writeManPages(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

// manName returns the name of the page of a command.
func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manEntry is an entry of a section of a manual page.
type manEntry struct{ name, text string }

// manSection is a section of a manual page that is not in the help.
type manSection struct {
	title   string
	entries []manEntry
}

// manSections returns the sections of a command's page that follow its options.
func manSections(c *cobra.Command) []manSection {
	var files, signals, environment []manEntry
	switch {
	case serves(c):
		if c.Name() != kubeAPIServerName {
			files = append(files,
				manEntry{"keelson-data", "The data directory; --data-dir names another one."},
				manEntry{"keelson-data/kubeconfig", "The kubeconfig of an administrator, written at each start."},
				manEntry{"keelson-data/pki", "The authorities, certificates and keys that the server has made. Who reads it is an administrator."},
				manEntry{"keelson-data/store", "The objects. Save them with keelson-snapshot-save(1), not by copying files of a running server."},
			)
			environment = append(environment,
				manEntry{"KUBECONFIG", "The kubeconfig that --write-kubeconfig changes when it has no value; otherwise it is $HOME/.kube/config."})
		}
		signals = []manEntry{
			{"SIGTERM, SIGINT", "Stop: requests in flight are finished first. The second signal ends the program at once."},
			{"SIGHUP", "Look for changes of configured files at once."},
		}
		environment = append(environment,
			manEntry{"GOGC, GOMEMLIMIT", "How often memory is collected, in place of what the server chooses; see the package runtime of Go."},
			manEntry{"NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID", "Set by systemd, which is told when the server is ready, alive and stopping."},
		)
	case c.Name() == "save":
		files = []manEntry{{"keelson-data/kubeconfig", "The kubeconfig with which a running server is asked."}}
		environment = []manEntry{{"HTTPS_PROXY, NO_PROXY", "The proxy for the connection to a running server."}}
	case c.HasParent() && c.Parent().Name() == kubectlhistory.Name:
		files = []manEntry{{"$HOME/.kube/config", "The kubeconfig, if neither --kubeconfig nor KUBECONFIG names others."}}
		environment = []manEntry{
			{"KUBECONFIG", "The kubeconfigs, as a list like that of PATH."},
			{"HTTPS_PROXY, NO_PROXY", "The proxy for the connection to the server."},
			{"NO_COLOR", "If it is not empty, nothing is printed in colours."},
		}
	case c.Name() == consoleName:
		files = []manEntry{{"$HOME/.kube/config", "The kubeconfig, if neither --kubeconfig nor KUBECONFIG names others."}}
		environment = []manEntry{
			{"KUBECONFIG", "The kubeconfigs, as a list like that of PATH."},
			{"HTTPS_PROXY, NO_PROXY", "The proxy for the connection to the server."},
			{"DISPLAY, WAYLAND_DISPLAY", "If neither is set, no browser is opened, except on macOS and Windows."},
		}
		signals = []manEntry{{"SIGTERM, SIGINT", "End. The second signal ends the program at once."}}
	case c.Name() == "install":
		environment = []manEntry{
			{"PATH, KUBEBUILDER_ASSETS, XDG_DATA_HOME", "Where kubectl is searched."},
			{"XDG_CACHE_HOME", "What the default directory is in; $HOME/.cache if it is not set."},
		}
	}
	if signals == nil {
		signals = []manEntry{{"SIGTERM, SIGINT", "End: files that are not complete are removed. The second signal ends the program at once."}}
	}
	status := []manEntry{{"0", "Success."}, {"1", "Failure; the reason is on standard error."}}
	return []manSection{{"FILES", files}, {"SIGNALS", signals}, {"EXIT STATUS", status}, {"ENVIRONMENT", environment}}
}

// manPage writes a page in the macros of man(7).
func manPage(out io.Writer, c *cobra.Command) {
	fmt.Fprintf(out, ".TH %q 1 %q %q\n", strings.ToUpper(manName(c)), "", "Keelson "+version.Keelson)
	fmt.Fprintf(out, ".SH NAME\n%s \\- %s\n", manText(manName(c)), manText(c.Short))
	fmt.Fprintf(out, ".SH SYNOPSIS\n.B %s\n", manText(c.UseLine()))
	fmt.Fprintf(out, ".SH DESCRIPTION\n%s\n", manText(cmp.Or(c.Long, c.Short)))
	c.InitDefaultHelpFlag()
	fmt.Fprintln(out, ".SH OPTIONS")
	if !c.HasParent() {
		fmt.Fprintf(out, "Without a command the options are those of\n.BR %s (1).\n", manText("keelson-serve"))
	} else {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names, usage := describeFlag(f)
				manParagraph(out, manEntry{strings.TrimSpace(names), usage})
			}
		})
	}
	fmt.Fprintf(out, ".SH EXAMPLES\n.nf\n%s\n.fi\n", manText(c.Example))
	for _, section := range manSections(c) {
		if len(section.entries) > 0 {
			fmt.Fprintf(out, ".SH %s\n", section.title)
		}
		for _, entry := range section.entries {
			manParagraph(out, entry)
		}
	}
	manSeeAlso(out, c)
}

// manSeeAlso writes the references to the pages of the commands above and below.
func manSeeAlso(out io.Writer, c *cobra.Command) {
	var others []string
	if c.HasParent() {
		others = append(others, manName(c.Parent()))
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			others = append(others, manName(sub))
		}
	}
	fmt.Fprintln(out, ".SH SEE ALSO")
	for i, name := range others {
		comma := ","
		if i == len(others)-1 {
			comma = ""
		}
		fmt.Fprintf(out, ".BR %s (1)%s\n", manText(name), comma)
	}
}

// manParagraph writes an entry as a paragraph with a heading.
func manParagraph(out io.Writer, e manEntry) {
	fmt.Fprintf(out, ".TP\n.B %s\n%s\n", manText(e.name), manText(e.text))
}

// manText escapes text, so that the macros of man(7) find no request or escape in it.
func manText(text string) string {
	text = strings.ReplaceAll(text, `\`, `\e`)
	text = strings.ReplaceAll(text, "-", `\-`)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
