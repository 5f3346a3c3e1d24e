package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"
)

var (
	gateMetric = regexp.MustCompile(`(?m)^kubernetes_feature_enabled\{name="([^"]*)",stage="([^"]*)"\} ([01])`)
	gateHelp   = regexp.MustCompile(`(?m)(?:kube:)?(\w+)=true\|false \((\w+) - default=(true|false)\)`)
	gateLocked = regexp.MustCompile(`cannot set feature gate (\w+) to (?:true|false), feature is locked to (true|false)`)
)

// collectGates returns the feature gates with their stage and default, and the values to which they are locked. The names
// come from the metrics, which have also gates that --help does not have; the gates of --help that are not in the metrics are
// added. A gate is locked if the program refuses to start with the other value.
func collectGates(ctx context.Context, c *comparison, s *server) (map[string]any, error) {
	r, err := s.do(ctx, request{method: "GET", path: "/metrics", accept: "*/*"})
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, m := range gateMetric.FindAllStringSubmatch(string(r.body), -1) {
		out[m[1]] = map[string]any{"stage": stageName(m[2]), "default": m[3] == "1"}
	}
	if len(s.program) == 0 {
		return out, nil
	}
	help, err := s.help(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range gateHelp.FindAllStringSubmatch(help, -1) {
		if out[m[1]] == nil && c.emulated == "" { // --help always shows the newest minor
			out[m[1]] = map[string]any{"stage": m[2], "default": m[3] == "true", "metric": false}
		}
	}
	var mu sync.Mutex // guards out and failed
	var failed error
	names := sortedNames(out)
	inParallel(len(names), func(i int) {
		mu.Lock()
		gate, _ := out[names[i]].(map[string]any)
		mu.Unlock()
		locked, err := s.locked(ctx, c.emulated, names[i], gate["default"] == true)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = err
		}
		gate["locked"] = locked
	})
	return out, failed
}

// stageName returns the stage of a gate in the metrics, which have an empty one for those that are generally available.
func stageName(stage string) string {
	if stage == "" {
		return "GA"
	}
	return stage
}

// locked reports whether the program refuses to change a gate. Other flags are missing, so that it does not start in any case.
func (s *server) locked(ctx context.Context, emulated, gate string, now bool) (bool, error) {
	const limit = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := append(s.program[1:len(s.program):len(s.program)], fmt.Sprintf("--feature-gates=%s=%v", gate, !now),
		"--secure-port=0", "--token-auth-file=/nonexistent", "--service-account-issuer=https://issuer",
		"--service-account-key-file=/nonexistent", "--service-account-signing-key-file=/nonexistent",
		"--service-cluster-ip-range=10.0.0.0/24", "--cert-dir=/nonexistent")
	if emulated != "" {
		args = append(args, "--emulated-version=kube="+emulated)
	}
	printed, err := exec.CommandContext(ctx, s.program[0], args...).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		return false, fmt.Errorf("%s with %s=%v did not fail: %w", s.name, gate, !now, ctx.Err())
	}
	m := gateLocked.FindSubmatch(printed)
	return m != nil && string(m[1]) == gate, nil
}

// help returns what the program prints with --help.
func (s *server) help(ctx context.Context) (string, error) {
	args := append(s.program[1:len(s.program):len(s.program)], "--help")
	printed, err := exec.CommandContext(ctx, s.program[0], args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --help: %w", strings.Join(s.program, " "), err)
	}
	return string(printed), nil
}
