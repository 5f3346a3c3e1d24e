package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/internal/server/version"
)

// newMan returns the command that writes the manual pages, for packagers.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the manual pages to a directory", SilenceUsage: true, SilenceErrors: true,
		Long: "Man writes a manual page for each command to DIR: keelson.1, keelson-serve.1 and so on.",
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

// manPage writes a page in the macros of man(7).
func manPage(out io.Writer, c *cobra.Command) {
	fmt.Fprintf(out, ".TH %q 1 %q %q\n", strings.ToUpper(manName(c)), "", "Keelson "+version.Keelson)
	fmt.Fprintf(out, ".SH NAME\n%s \\- %s\n", manText(manName(c)), manText(c.Short))
	fmt.Fprintf(out, ".SH SYNOPSIS\n.B %s\n", manText(c.UseLine()))
	// A description has lines that belong together, such as commands.
	fmt.Fprintf(out, ".SH DESCRIPTION\n.nf\n%s\n.fi\n", manText(firstText(c.Long, c.Short)))
	if c.Example != "" {
		fmt.Fprintf(out, ".SH EXAMPLE\n.nf\n%s\n.fi\n", manText(c.Example))
	}
	c.InitDefaultHelpFlag()
	fmt.Fprintln(out, ".SH OPTIONS")
	c.Flags().VisitAll(func(f *pflag.Flag) { manFlag(out, f) })
	var others []string
	if c.HasParent() {
		others = append(others, manName(c.Parent()))
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			others = append(others, manName(sub))
		}
	}
	if len(others) > 0 {
		fmt.Fprintln(out, ".SH SEE ALSO")
		for i, name := range others {
			comma := ","
			if i == len(others)-1 {
				comma = ""
			}
			fmt.Fprintf(out, ".BR %s (1)%s\n", manText(name), comma)
		}
	}
}

func firstText(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// manFlag writes the paragraph of a flag.
func manFlag(out io.Writer, f *pflag.Flag) {
	if f.Hidden || f.Deprecated != "" {
		return
	}
	kind, usage := pflag.UnquoteUsage(f)
	names := `\-\-` + manText(f.Name)
	if f.Shorthand != "" {
		names = `\-` + f.Shorthand + ", " + names
	}
	if kind != "" {
		names += " " + kind
	}
	switch f.DefValue {
	case "", "[]", "false", "0", "0s":
	default:
		usage += " (default " + f.DefValue + ")"
	}
	fmt.Fprintf(out, ".TP\n.B %s\n%s\n", names, manText(usage))
}

// manText returns text in which nothing is a request or an escape of the macros.
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
