package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// newCompletion returns the command that prints the completion script of a shell.
func newCompletion(out io.Writer) *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use: "completion bash|zsh|fish|powershell", Short: "Print completions for a shell",
		Long: "Completion prints a script by which a shell completes commands and flags. The\n" +
			"examples load it in each new shell. That of bash needs the package\n" +
			"bash-completion; the last one is for the profile of PowerShell.",
		Example: "  echo 'source <(keelson completion bash)' >>~/.bashrc\n" +
			"  keelson completion zsh >\"${fpath[1]}/_keelson\"\n" +
			"  keelson completion fish >~/.config/fish/completions/keelson.fish\n" +
			"  keelson completion powershell | Out-String | Invoke-Expression",
		ValidArgs: shells, SilenceUsage: true, SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name one shell: bash, zsh, fish or powershell")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			const descriptions = true
			switch root := c.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, descriptions)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, descriptions)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(out)
			}
			return fmt.Errorf("there are no completions for %q, only for bash, zsh, fish and powershell", args[0])
		},
	}
}
