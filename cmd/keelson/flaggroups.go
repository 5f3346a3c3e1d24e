package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// keelsonGroup has the flags that kube-apiserver does not have.
const keelsonGroup = "Keelson"

// flagGroup is a group of flags in the help.
type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

// groupFlags returns the flags by group, in the order of the help.
func groupFlags(f *pflag.FlagSet) []flagGroup {
	titles, texts := parseFlagTexts()
	of, groups := map[string]int{}, make([]flagGroup, len(titles))
	for i, title := range titles {
		groups[i] = flagGroup{title + " flags:\n", pflag.NewFlagSet(title, pflag.ContinueOnError)}
	}
	for _, text := range texts {
		of[text.name] = slices.Index(titles, text.group)
	}
	f.VisitAll(func(flag *pflag.Flag) {
		i, found := of[flag.Name]
		if !found {
			i = slices.Index(titles, keelsonGroup)
		}
		groups[i].flags.AddFlag(flag)
	})
	return groups
}

// helpAll is the flag that prints all flags.
const helpAll = "help-all"

// firstFlags are the flags that the help of a command that serves shows; --help-all shows all.
var firstFlags = []struct {
	title string
	names []string
}{
	{"Data", []string{"data-dir", "storage", "etcd-servers", "cache-memory", "history-window"}},
	{"Address", []string{"bind-address", "secure-port", "external-hostname", "tls-san", "tls-cert-file", "tls-private-key-file"}},
	{"Users", []string{"write-kubeconfig", "token-auth-file", "client-ca-file", "authorization-mode"}},
	{"API", []string{"controllers", "feature-gates", "runtime-config"}},
	{"Other", []string{"audit-policy-file", "v", "log-format", "help", "help-all", "version"}},
}

// groupHelp makes the help of a command wrap its flags to the width of the terminal, and its error of an unknown flag name
// the nearest one. Of a command that serves it shows firstFlags, or with --help-all all flags by group. kube-apiserver has no
// such flag and shows all.
func groupHelp(c *cobra.Command) {
	c.SetUsageFunc(func(c *cobra.Command) error { usage(c, c.OutOrStderr()); return nil })
	c.SetHelpFunc(func(c *cobra.Command, _ []string) {
		fmt.Fprintf(c.OutOrStdout(), "%s\n\n", cmp.Or(c.Long, c.Short))
		usage(c, c.OutOrStdout())
	})
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		name, found := strings.CutPrefix(err.Error(), "unknown flag: --")
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if near := nearest(names, name); found && near != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, near)
		}
		return err
	})
}

func usage(c *cobra.Command, out io.Writer) {
	fmt.Fprintf(out, "Usage:\n  %s\n", c.UseLine())
	if c.HasAvailableSubCommands() {
		fmt.Fprint(out, "\nCommands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(out, "  %-16s %s\n", sub.Name(), sub.Short)
			}
		}
	}
	if c.HasExample() {
		fmt.Fprintf(out, "\nExamples:\n%s\n", c.Example)
	}
	var groups []flagGroup
	switch serves := c.Flags().Lookup("secure-port") != nil; {
	case !serves:
		groups = []flagGroup{{"Flags:", c.Flags()}}
	case c.Flags().Lookup(helpAll) == nil || c.Flags().Changed(helpAll):
		groups = groupFlags(c.Flags())
	case c.HasAvailableSubCommands():
		fmt.Fprintf(out, "\n%s serve --help lists the flags of the server.\n", c.CommandPath())
	default:
		groups = mainGroups(c.Flags())
		defer fmt.Fprintf(out, "\n%s --help-all lists all flags, also those of kube-apiserver.\n", c.CommandPath())
	}
	for _, g := range groups {
		if g.flags.HasAvailableFlags() {
			fmt.Fprintf(out, "\n%s\n", g.title)
			g.flags.VisitAll(func(f *pflag.Flag) { describeFlag(out, f, terminalWidth(out)) })
		}
	}
}

// describeFlag prints a flag and, below it, what it does. (pflag puts both beside each other, and then wraps little.)
func describeFlag(out io.Writer, f *pflag.Flag, width int) {
	const indent = "          "
	if f.Hidden || f.Deprecated != "" {
		return
	}
	kind, text := kindAndText(f)
	short := "    "
	if f.Shorthand != "" {
		short = "-" + f.Shorthand + ", "
	}
	fmt.Fprintf(out, "  %s--%s %s\n", short, f.Name, kind)
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line)+len(word) >= width && line != indent {
			fmt.Fprintln(out, strings.TrimSuffix(line, " "))
			line = indent
		}
		line += word + " "
	}
	fmt.Fprintln(out, strings.TrimSuffix(line, " "))
}

// kindAndText returns the kind of a flag's value, and what the flag does with its default.
func kindAndText(f *pflag.Flag) (kind, text string) {
	kind, text = pflag.UnquoteUsage(f)
	switch f.DefValue {
	case "", "[]", "false", "0", "0s":
	default:
		text += " (default " + f.DefValue + ")"
	}
	return kind, text
}

// mainGroups returns firstFlags.
func mainGroups(f *pflag.FlagSet) []flagGroup {
	var groups []flagGroup
	for _, first := range firstFlags {
		g := flagGroup{first.title + ":", pflag.NewFlagSet(first.title, pflag.ContinueOnError)}
		g.flags.SortFlags = false
		for _, name := range first.names {
			if flag := f.Lookup(name); flag != nil {
				g.flags.AddFlag(flag)
			}
		}
		groups = append(groups, g)
	}
	return groups
}

// terminalWidth returns how many characters a line of the terminal has, 80 for other outputs.
func terminalWidth(out io.Writer) int {
	const usual, least = 80, 60
	if file, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			return max(width, least)
		}
	}
	return usual
}

// noArguments refuses arguments. Of a command with subcommands, the argument is a mistyped one.
func noArguments(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case !c.HasAvailableSubCommands():
		return fmt.Errorf("%s takes no arguments, but there is %q", c.CommandPath(), args[0])
	}
	var names []string
	for _, sub := range c.Commands() {
		names = append(names, sub.Name())
	}
	if near := nearest(names, args[0]); near != "" {
		return fmt.Errorf("unknown command %q; did you mean %s %s?", args[0], c.CommandPath(), near)
	}
	return fmt.Errorf("unknown command %q; %s --help lists the commands", args[0], c.CommandPath())
}

// nearest returns the name that is most like another one, "" if none is.
func nearest(names []string, name string) string {
	best, least := "", len(name)/3+1
	if len(name) > 3 {
		least = max(least, 3) // two neighbours that are exchanged
	}
	for _, other := range names {
		d := distance(name, other)
		if len(name) > 3 && strings.HasPrefix(other, name) {
			d = min(d, 1)
		}
		if d < least {
			best, least = other, d
		}
	}
	return best
}

// distance returns how many characters have to be inserted, removed or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // row[j] is the distance between a[:i] and b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = slices.Min([]int{replaced, row[j] + 1, row[j+1] + 1})
		}
	}
	return row[len(b)]
}
