package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/members"
)

// membersOf is a cluster of servers, which is asked at one of them.
type membersOf struct {
	dataDir, kubeconfig string
	out                 io.Writer
}

func newMembers(out io.Writer) *cobra.Command {
	m := &membersOf{dataDir: config.Default().Storage.DataDir, out: out}
	c := &cobra.Command{
		Use: "members", Short: "List and change the servers of a cluster",
		Long: "Members asks a server of a cluster (keelson serve --cluster-init and --join),\n" +
			"over its API as an administrator.",
		Example: "  keelson members token create    print the command with which a server joins\n" +
			"  keelson members list\n" +
			"  keelson members remove NAME",
		SilenceUsage: true, SilenceErrors: true, Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	f := c.PersistentFlags()
	f.StringVar(&m.dataDir, "data-dir", m.dataDir, "data directory of a server of the cluster, which has the kubeconfig")
	f.StringVar(&m.kubeconfig, "kubeconfig", "", "kubeconfig of an administrator, in place of the one in --data-dir")
	c.AddCommand(m.newList(), m.newRemove(), m.newMoveLeader(), m.newToken())
	return c
}

// sub completes a subcommand. What follows the name in Use is its argument, which may be missing if it is in brackets.
func (m *membersOf) sub(c cobra.Command, run func(ctx context.Context, r *remote, argument string) error) *cobra.Command {
	_, argument, takes := strings.Cut(c.Use, " ")
	optional := strings.HasPrefix(argument, "[")
	c.SilenceUsage, c.SilenceErrors = true, true
	c.RunE = func(c *cobra.Command, args []string) error {
		path := m.kubeconfig
		if path == "" {
			path = datadir.Kubeconfig(m.dataDir)
		}
		r, err := newRemote(path)
		if err != nil {
			return err
		}
		return run(c.Context(), r, strings.Join(args, " "))
	}
	c.Args = func(c *cobra.Command, args []string) error {
		switch {
		case !takes && len(args) > 0:
			return fmt.Errorf("%s takes no arguments", c.CommandPath())
		case takes && !optional && len(args) != 1, len(args) > 1:
			return fmt.Errorf("%s takes one argument, the %s", c.CommandPath(), argument)
		}
		return nil
	}
	return &c
}

func (m *membersOf) newList() *cobra.Command {
	format := ""
	c := m.sub(cobra.Command{
		Use: "list", Short: "List the members with their state",
		Long: "List prints the members, and what each says of itself: its version, its role,\n" +
			"the size of its database, and how many entries of the log it is behind.",
		Example: "  keelson members list\n  keelson members list --output json",
	},
		func(ctx context.Context, r *remote, _ string) error {
			var list []members.Member
			if err := r.call(ctx, http.MethodGet, members.Path, nil, &list); err != nil {
				return err
			}
			switch format {
			case "json":
				e := json.NewEncoder(m.out)
				e.SetIndent("", "  ")
				return e.Encode(list)
			case "":
				return m.print(list)
			}
			return fmt.Errorf("--output must be json, not %q", format)
		})
	c.Flags().StringVarP(&format, "output", "o", "", "json, or nothing for a table")
	return c
}

// print prints members as a table.
func (m *membersOf) print(list []members.Member) error {
	w := tabwriter.NewWriter(m.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tROLE\tHEALTH\tVERSION\tSIZE\tBEHIND\tADDRESS\tURL")
	for _, i := range list {
		health, size, behind := "ok", fmt.Sprintf("%.1f MB", float64(i.Bytes)/1e6), fmt.Sprint(i.Behind)
		switch {
		case i.Error != "":
			health, size, behind = i.Error, "", ""
		case len(i.Alarms) > 0:
			health = fmt.Sprint(i.Alarms)
		case i.Shrinking:
			health = "makes its database smaller"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", i.Name, i.Role, health, i.Version, size, behind, i.Address, i.URL)
	}
	return w.Flush()
}

func (m *membersOf) newRemove() *cobra.Command {
	return m.sub(cobra.Command{
		Use: "remove NAME", Short: "Remove a member",
		Long: "Remove takes a server out of the cluster: a lost one, or one that runs, which\n" +
			"then ends. The rest of the members must be a majority. To add the server again,\n" +
			"start it with --join and --token.",
		Example: "  keelson members remove node-3",
	},
		func(ctx context.Context, r *remote, name string) error {
			if err := r.call(ctx, http.MethodPost, members.Path+"/remove", members.NameRequest{Name: name}, &struct{}{}); err != nil {
				return err
			}
			_, err := fmt.Fprintf(m.out, "%s was removed\n", name)
			return err
		})
}

func (m *membersOf) newMoveLeader() *cobra.Command {
	return m.sub(cobra.Command{
		Use: "move-leader [NAME]", Short: "Make another member the leader",
		Long: "Move-leader makes a member the leader, or any other one than the present one if\n" +
			"no name is given: before a machine is stopped, for example.",
		Example: "  keelson members move-leader\n  keelson members move-leader node-2",
	},
		func(ctx context.Context, r *remote, name string) error {
			return r.call(ctx, http.MethodPost, members.Path+"/move-leader", members.NameRequest{Name: name}, &struct{}{})
		})
}

func (m *membersOf) newToken() *cobra.Command {
	c := &cobra.Command{
		Use: "token", Short: "Make, list and revoke the tokens for --join",
		Long:         "A token lets a server join the cluster. It gives it all keys of the cluster, so\nkeep it as you keep these.",
		Example:      "  keelson members token create",
		SilenceUsage: true, SilenceErrors: true, Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var request members.TokenRequest
	create := m.sub(cobra.Command{
		Use: "create", Short: "Make a token, and print the command that uses it",
		Long:    "Create makes a token and prints the command with which a server joins.",
		Example: "  keelson members token create --ttl 1h",
	},
		func(ctx context.Context, r *remote, _ string) error {
			var made members.TokenAnswer
			if err := r.call(ctx, http.MethodPost, members.Path+"/tokens", request, &made); err != nil {
				return err
			}
			_, err := fmt.Fprintf(m.out, "keelson serve --join %s --token %s\n", made.URL, made.Text)
			return err
		})
	create.Flags().DurationVar(&request.Lifetime, "ttl", members.DefaultTokenTime, "how long the token is valid, from 1m to 8760h")
	create.Flags().StringVar(&request.Description, "description", "", "what the token is for")
	list := m.sub(cobra.Command{
		Use: "list", Short: "List the tokens", Long: "List prints the tokens that have not expired, without their secret parts.",
		Example: "  keelson members token list",
	},
		func(ctx context.Context, r *remote, _ string) error {
			var list []members.Token
			if err := r.call(ctx, http.MethodGet, members.Path+"/tokens", nil, &list); err != nil {
				return err
			}
			w := tabwriter.NewWriter(m.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tEXPIRES\tDESCRIPTION")
			for _, t := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\n", t.ID, t.Expires.Local().Format(time.RFC3339), t.Description)
			}
			return w.Flush()
		})
	revoke := m.sub(cobra.Command{
		Use: "revoke ID", Short: "Make a token invalid",
		Long:    "Revoke makes a token invalid. Servers that have joined with it stay members.",
		Example: "  keelson members token revoke 3fz8mq2a",
	},
		func(ctx context.Context, r *remote, id string) error {
			if id == "" {
				return errors.New("the ID must not be empty")
			}
			if err := r.call(ctx, http.MethodPost, members.Path+"/tokens/revoke", members.TokenRequest{ID: id}, &struct{}{}); err != nil {
				return err
			}
			_, err := fmt.Fprintf(m.out, "the token %s was revoked\n", id)
			return err
		})
	c.AddCommand(create, list, revoke)
	return c
}
