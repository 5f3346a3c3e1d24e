package main

import (
	"context"
	"regexp"
	"slices"
	"strings"
)

var (
	flagLine    = regexp.MustCompile(`^ +(?:-\w, )?--([A-Za-z0-9.-]+)(\[[^\]]*\])?(?: (\S+))?(?: {2,}|$)(.*)`)
	flagDefault = regexp.MustCompile(`\(default (.*?)\)(?: \(DEPRECATED:.*)?$`)
)

// collectFlags returns the flags in --help with their defaults. The usage texts are not compared, because Keelson has its own,
// nor the words for types.
func collectFlags(ctx context.Context, _ *comparison, s *server) (map[string]any, error) {
	if len(s.program) == 0 {
		return nil, errSkipped
	}
	help, err := s.help(ctx)
	if err != nil {
		return nil, err
	}
	return parseFlags(help), nil
}

func parseFlags(help string) map[string]any {
	out := map[string]any{}
	name, usage := "", ""
	end := func() {
		if name == "" {
			return
		}
		f := map[string]any{"deprecated": strings.Contains(usage, "DEPRECATED")}
		if m := flagDefault.FindStringSubmatch(usage); m != nil {
			value := strings.Trim(m[1], `"`)
			if !slices.Contains([]string{"", "0", "0s", "false", "[]"}, value) { // not all types of flags print these
				f["default"] = value
			}
		}
		out[name] = f
	}
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n ")
		switch m := flagLine.FindStringSubmatch(line); {
		case m != nil:
			end()
			name, usage = m[1], m[4]
		case !strings.HasPrefix(line, " "):
			end()
			name = ""
		default:
			usage += " " + strings.TrimSpace(line)
		}
	}
	end()
	return out
}
