package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/server"
	"github.com/keelson-dev/keelson/internal/server/certs"
	"github.com/keelson-dev/keelson/internal/server/frontpage"
	"github.com/keelson-dev/keelson/internal/server/workloads"
)

// contextName is the name of the context, the cluster and the user that are added to the user's kubeconfig.
const contextName = "keelson"

// usersKubeconfig as the value of --write-kubeconfig means the kubeconfig that kubectl uses.
const usersKubeconfig = "default"

func writeKubeconfigFlag(f *pflag.FlagSet, file *string) {
	const name = "write-kubeconfig"
	f.StringVar(
		file, name, "",
		"add a context \"keelson\" with the administrator's credentials to this kubeconfig and make it the current one; "+
			"without a value to the kubeconfig that kubectl uses",
	)
	f.Lookup(name).NoOptDefVal = usersKubeconfig
}

// welcome prints the URL of the server and a first command. If writeTo is not empty, it first adds the server to
// that kubeconfig. The function leave then makes the former current context the current one again.
func welcome(ctx context.Context, out io.Writer, s *server.Server, writeTo string) (leave func() error, err error) {
	leave = func() error { return nil }
	what, path := "Its kubeconfig, for an administrator, is", s.KubeconfigPath()
	tryWith := path // the kubeconfig for the commands that are shown
	switch {
	case writeTo != "":
		if path, err = kubeconfigToWrite(writeTo); err != nil {
			return leave, err
		}
		earlier, err := mergeKubeconfigFile(ctx, path, s.Kubeconfig())
		if err != nil {
			return leave, fmt.Errorf("--write-kubeconfig: %w", err)
		}
		leave = func() error { return leaveContext(path, earlier) }
		what = "The context keelson, for an administrator, is now the current one in"
		tryWith = ""
		if writeTo != usersKubeconfig {
			tryWith = path
		}
	case path == "":
		what, path = "It has no data directory; for an administrator's kubeconfig add", "--write-kubeconfig=FILE"
		tryWith = "FILE"
	}
	try := frontpage.Command(tryWith)
	remote := ""
	if s.RemoteURL() != "" {
		remote = fmt.Sprintf(", and to other machines at %s (context %s)", s.RemoteURL(), certs.RemoteClusterName)
		if writeTo != "" { // that kubeconfig has one context alone
			remote = ", and to other machines at " + s.RemoteURL()
		}
	}
	_, err = fmt.Fprintf(out, "Keelson serves the Kubernetes API at %s%s\n%s %s\nTry: %s\n%sIt stores workloads and runs none: %s\n",
		s.URL(), remote, what, path, try, consoleLine(s.ConsoleURL(), tryWith), workloads.Page)
	return leave, err
}

// consoleLine returns the line of the welcome about the console, "" if there is none. For kubeconfig see
// frontpage.Command.
func consoleLine(url, kubeconfig string) string {
	if url == "" {
		return ""
	}
	return "Console: " + url + " (log in with a token), or without one: " + frontpage.ConsoleCommand(kubeconfig) + "\n"
}

// kubeconfigToWrite returns the path of the file for a value of --write-kubeconfig.
func kubeconfigToWrite(value string) (string, error) {
	if value != usersKubeconfig {
		return value, nil
	}
	// Like kubectl, it uses the first file of the list that exists, or else the last one.
	files := slices.DeleteFunc(filepath.SplitList(os.Getenv("KUBECONFIG")), func(f string) bool { return f == "" })
	for _, f := range files {
		if _, err := os.Stat(f); err == nil {
			return f, nil
		}
	}
	if len(files) > 0 {
		return files[len(files)-1], nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("--write-kubeconfig needs a file: %w", err)
	}
	return filepath.Join(home, ".kube", "config"), nil
}

// mergeKubeconfigFile adds the cluster, the user and the context of own to the kubeconfig in a file, under the name
// keelson, and makes it the current context. It replaces entries of that name and keeps everything else but comments. It
// returns the name of the context that was the current one.
func mergeKubeconfigFile(ctx context.Context, path string, own []byte) (earlier string, err error) {
	err = changeKubeconfig(ctx, path, func(existing []byte) (changed []byte, err error) {
		earlier, changed, err = mergeKubeconfig(existing, own)
		return changed, err
	})
	return earlier, err
}

// leaveContext makes the context earlier the current one of a kubeconfig again, if it exists and the current one is still
// keelson. Without an earlier context keelson stays the current one.
func leaveContext(path, earlier string) error {
	if earlier == "" || earlier == contextName {
		return nil
	}
	err := changeKubeconfig(context.Background(), path, func(existing []byte) ([]byte, error) {
		config := map[string]any{}
		if err := yaml.Unmarshal(existing, &config); err != nil {
			return nil, err
		}
		contexts, _ := config["contexts"].([]any) // kubectl refuses other types
		exists := slices.ContainsFunc(contexts, func(e any) bool { return entryIs(e, earlier) })
		if config["current-context"] != contextName || !exists {
			return existing, nil
		}
		config["current-context"] = earlier
		return yaml.Marshal(config)
	})
	if err != nil {
		return fmt.Errorf("the context %s, which was the current one before, is not set again: %w", earlier, err)
	}
	return nil
}

// changeKubeconfig replaces the content of a kubeconfig by the result of change. The file may be missing. It is
// replaced atomically, under the lock of kubectl, and gets the mode 0600, because it has the key of an
// administrator.
func changeKubeconfig(ctx context.Context, path string, change func(existing []byte) ([]byte, error)) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // the link stays
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("cannot create %s: %w", filepath.Dir(path), withoutPath(err))
	}
	unlock, err := lockKubeconfig(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	existing, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read %s: %w", path, withoutPath(err))
	}
	changed, err := change(existing)
	if err != nil {
		return fmt.Errorf("%s was not changed: %w", path, err)
	}
	if bytes.Equal(changed, existing) {
		return nil
	}
	return replaceFile(path, func(temporary string) error {
		const mode = 0o600 // the temporary file already has this mode
		return os.WriteFile(temporary, changed, mode)
	})
}

// lockKubeconfig creates the lock file that kubectl also creates while it changes a kubeconfig. If another program
// has created it, lockKubeconfig waits for a few seconds.
func lockKubeconfig(ctx context.Context, path string) (unlock func() error, err error) {
	const patience, pause = 5 * time.Second, 20 * time.Millisecond
	lock := path + ".lock"
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0)
		switch {
		case err == nil:
			return func() error { return errors.Join(f.Close(), os.Remove(lock)) }, nil
		case !errors.Is(err, fs.ErrExist):
			return nil, fmt.Errorf("cannot write %s: %w", lock, withoutPath(err))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another program changes %s; if none does, remove %s", path, lock)
		case <-time.After(pause):
		}
	}
}

// mergeKubeconfig adds the first cluster and user of own to existing, with the name keelson. earlier is the
// current context of existing. existing may be empty. It fails if existing is not a kubeconfig.
func mergeKubeconfig(existing, own []byte) (earlier string, merged []byte, err error) {
	config, from := map[string]any{}, map[string]any{}
	if err := yaml.Unmarshal(existing, &config); err != nil {
		return "", nil, fmt.Errorf("it is not a kubeconfig: %w", err)
	}
	if err := yaml.Unmarshal(own, &from); err != nil {
		return "", nil, err
	}
	if config == nil { // the document is null
		config = map[string]any{}
	}
	for field, value := range map[string]string{"apiVersion": "v1", "kind": "Config"} {
		if have, found := config[field]; found && have != value {
			return "", nil, fmt.Errorf("it is not a kubeconfig: %s is %v", field, have)
		}
		config[field] = value
	}
	cluster, err := firstEntry(from, "clusters", "cluster")
	if err != nil {
		return "", nil, err
	}
	user, err := firstEntry(from, "users", "user")
	if err != nil {
		return "", nil, err
	}
	for _, entry := range []struct {
		list, field string
		value       any
	}{
		{"clusters", "cluster", cluster}, {"users", "user", user},
		{"contexts", "context", map[string]any{"cluster": contextName, "user": contextName}},
	} {
		if err := setEntry(config, entry.list, entry.field, entry.value); err != nil {
			return "", nil, err
		}
	}
	earlier, _ = config["current-context"].(string)
	config["current-context"] = contextName
	merged, err = yaml.Marshal(config)
	return earlier, merged, err
}

// firstEntry returns the value of the first entry of a list of a kubeconfig.
func firstEntry(config map[string]any, list, field string) (any, error) {
	if entries, ok := config[list].([]any); ok && len(entries) > 0 {
		if entry, ok := entries[0].(map[string]any); ok {
			return entry[field], nil
		}
	}
	return nil, fmt.Errorf("the kubeconfig of the server has no %s", list)
}

// setEntry replaces the entries of the name keelson in a list of a kubeconfig by one, or appends it.
func setEntry(config map[string]any, list, field string, value any) error {
	var entries []any
	switch have := config[list].(type) {
	case nil:
	case []any:
		entries = have
	default:
		return fmt.Errorf("it is not a kubeconfig: %s is not a list", list)
	}
	isOwn := func(e any) bool { return entryIs(e, contextName) }
	entry := map[string]any{"name": contextName, field: value}
	if i := slices.IndexFunc(entries, isOwn); i >= 0 {
		entries[i] = entry
		rest := slices.DeleteFunc(slices.Clone(entries[i+1:]), isOwn)
		entries = append(entries[:i+1], rest...)
	} else {
		entries = append(entries, entry)
	}
	config[list] = entries
	return nil
}

// entryIs reports whether an entry of a list of a kubeconfig has a name.
func entryIs(e any, name string) bool {
	entry, ok := e.(map[string]any)
	return ok && entry["name"] == name
}
