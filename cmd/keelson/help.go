package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// standardWidth is the width of the help where the width of the terminal is unknown.
const standardWidth = 80

// commonFlags are the flags that `keelson serve --help` shows; --help-all shows all.
func commonFlags() []struct {
	title string
	names []string
} {
	return []struct {
		title string
		names []string
	}{
		{"Data", []string{
			"data-dir", "storage", "etcd-servers", "encryption-provider-config", "backup-to", "snapshot-schedule",
			"history-retention",
		}},
		{"Cluster", []string{"cluster-init", "join"}},
		{"Addresses", []string{"bind-address", "secure-port", "external-hostname", "tls-san"}},
		{"Access", []string{"write-kubeconfig", "authorization-mode"}},
		{"Operation", []string{"cache-memory", "log-format", "v"}},
		{"Help", []string{"help", "help-all", "version"}},
	}
}

// serves reports whether a command serves the API.
func serves(c *cobra.Command) bool { return c.Flags().Lookup("secure-port") != nil }

// setHelp sets the help of a command and its subcommands, and an error for unknown flags that suggests a similar
// flag.
func setHelp(c *cobra.Command) {
	c.SetUsageFunc(func(c *cobra.Command) error { writeUsage(c, c.OutOrStderr()); return nil })
	c.SetHelpFunc(func(c *cobra.Command, _ []string) {
		fmt.Fprintf(c.OutOrStdout(), "%s\n\n", cmp.Or(c.Long, c.Short))
		writeUsage(c, c.OutOrStdout())
	})
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, f.Name)
			}
		})
		if name := oneDash(err.Error(), known); name != "" {
			return fmt.Errorf("unknown flag: -%s; did you mean --%[1]s?", name)
		}
		name, found := strings.CutPrefix(err.Error(), "unknown flag: --")
		if !found {
			return err
		}
		if near := nearestFlag(name, known); near != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, near)
		}
		return err
	})
}

// ofOneDash matches errors of the flag library for flags with one dash. The library reads the text after the dash
// as a series of flags of one letter. The error is about the first one that is unknown, or that takes the rest as
// its value.
var ofOneDash = regexp.MustCompile(
	`^unknown shorthand flag: '.' in -([\w-]+)|^invalid argument "([^"]*)" for "-(\w), --[\w-]+" flag: `)

// oneDash returns the flag that was given with one dash instead of two, "" if the error is about something else.
func oneDash(message string, known []string) string {
	found := ofOneDash.FindStringSubmatch(message)
	if found == nil {
		return ""
	}
	// In -version the library sees -v with the value "ersion". In -help-all it has already read the h before the
	// error.
	for _, name := range []string{found[1], found[3] + found[2], "h" + found[1]} {
		if len(name) > 1 && slices.Contains(known, name) {
			return name
		}
	}
	return ""
}

// nearestFlag returns the known flag that is most similar to name. It prefers a flag of the short help with one
// more word before name (--secure-port for --port). It returns "" if there is no similar flag.
func nearestFlag(name string, known []string) string {
	for _, group := range commonFlags() {
		for _, common := range group.names {
			if _, last, _ := strings.Cut(common, "-"); last == name && slices.Contains(known, common) {
				return common
			}
		}
	}
	return nearest(name, known)
}

// writeUsage writes the usage of a command. A command that serves has only the flags of commonFlags there, and
// none if it has subcommands. But kube-apiserver has all flags, because programs search its help for flags.
func writeUsage(c *cobra.Command, out io.Writer) {
	width := terminalWidth(out)
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
	switch {
	case c.Name() == kubeAPIServerName:
		for _, g := range groupFlags(c.Flags()) {
			if g.flags.HasAvailableFlags() {
				fmt.Fprintf(out, "\n%s flags:\n\n%s", g.title, g.flags.FlagUsagesWrapped(width))
			}
		}
	case serves(c) && c.HasSubCommands():
		fmt.Fprint(out, "\n`keelson COMMAND --help` shows more of a command. Without a command the flags\nare those of serve.\n")
	case serves(c):
		for _, group := range commonFlags() {
			flags := pflag.NewFlagSet(group.title, pflag.ContinueOnError)
			flags.SortFlags = false
			for _, name := range group.names {
				if flag := c.Flags().Lookup(name); flag != nil {
					flags.AddFlag(flag)
				}
			}
			fmt.Fprintf(out, "\n%s:\n", group.title)
			writeFlags(flags, out, width)
		}
	default:
		fmt.Fprint(out, "\nFlags:\n")
		writeFlags(c.Flags(), out, width)
	}
}

// writeAllUsage writes the usage of a command that serves, with all flags, in the groups of kube-apiserver's help.
func writeAllUsage(c *cobra.Command, out io.Writer) {
	fmt.Fprintf(out, "%s\n\nUsage:\n  %s\n", c.Long, c.UseLine())
	for _, g := range groupFlags(c.Flags()) {
		if g.flags.HasAvailableFlags() {
			fmt.Fprintf(out, "\n%s flags:\n\n", g.title)
			writeFlags(g.flags, out, terminalWidth(out))
		}
	}
}

// writeFlags writes the flags that are not hidden, each with its description below it. width 0 means
// standardWidth.
func writeFlags(flags *pflag.FlagSet, out io.Writer, width int) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names, usage := describeFlag(f)
			fmt.Fprintf(out, "%s\n%s", names, wrap(usage, "          ", cmp.Or(width, standardWidth)))
		}
	})
}

// describeFlag returns the names of a flag with the type of its value, indented, and what it does, with its default.
func describeFlag(f *pflag.Flag) (names, usage string) {
	kind, usage := pflag.UnquoteUsage(f)
	names = "      --" + f.Name
	if f.Shorthand != "" {
		names = "  -" + f.Shorthand + ", --" + f.Name
	}
	if kind != "" {
		names += " " + kind
	}
	switch f.DefValue {
	case "", "[]", "false", "0", "0s":
	default:
		usage += " (default " + f.DefValue + ")"
	}
	return names, usage
}

// wrap returns text in lines of at most width characters that begin with indent. A longer word has a line of its own.
func wrap(text, indent string, width int) string {
	var out strings.Builder
	line := indent
	for word := range strings.FieldsSeq(text) {
		if len(line) > len(indent) && len(line)+len(word)+1 > width {
			out.WriteString(line + "\n")
			line = indent
		}
		if len(line) > len(indent) {
			line += " "
		}
		line += word
	}
	return out.String() + line + "\n"
}

// terminalWidth returns the number of columns if out is a terminal, else 0.
func terminalWidth(out io.Writer) int {
	if f, ok := out.(*os.File); ok && isTerminal(out) {
		return columnsOf(f)
	}
	return 0
}

// noArguments returns an error for any argument. If the command has subcommands, the argument is an unknown
// subcommand.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !c.HasSubCommands() {
		return fmt.Errorf("%s takes no arguments, but there is %q", c.CommandPath(), args[0])
	}
	var names []string
	for _, sub := range c.Commands() {
		names = append(names, sub.Name())
	}
	message := fmt.Sprintf("unknown command %q", args[0])
	if c.HasParent() {
		message += " of " + c.CommandPath()
	}
	if near := nearest(args[0], names); near != "" {
		return fmt.Errorf("%s; did you mean %q?", message, near)
	}
	return errors.New(message + "; `" + c.CommandPath() + " --help` lists the commands")
}
