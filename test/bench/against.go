package main

import (
	"context"
	"fmt"
	"io"
)

// side is one of the two compared servers.
type side struct {
	command string
	best    map[string]figure // the best figure of each row
}

// compare measures two servers in turn, round after round, each time on new data, and prints the best figure of each
// row side by side. On a machine that is also used for other work, the best figure is the least disturbed one.
func compare(ctx context.Context, o *options, dir string, out, progress io.Writer) error {
	sides := []*side{{command: o.start, best: map[string]figure{}}, {command: o.against, best: map[string]figure{}}}
	for round := range o.rounds {
		for i := range sides {
			s := sides[(i+round)%len(sides)]
			if ctx.Err() != nil {
				return ctx.Err()
			}
			fmt.Fprintf(progress, "bench: round %d of %d: %s\n", round+1, o.rounds, s.command)
			one := *o
			one.start = s.command
			b, err := newBench(ctx, &one, dir, progress)
			if err != nil {
				return err
			}
			b.run()
			b.close()
			s.take(b.report.Rows)
		}
	}
	_, err := fmt.Fprintf(
		out, "## %s\n\n1: %s\n2: %s\nbest of %d rounds each\n\n%s", o.label, sides[0].command, sides[1].command, o.rounds,
		align(sideBySide(sides[0], sides[1])),
	)
	return err
}

// take keeps the figures that are better than those of earlier rounds.
func (s *side) take(rows []figure) {
	for _, f := range rows {
		e, _ := expected(f.Row)
		old, has := s.best[f.Row]
		if f.Error != "" && has {
			continue
		}
		better := f.Value > old.Value
		if e.unit != perSecond {
			better = f.Value < old.Value
		}
		if !has || old.Error != "" || better {
			s.best[f.Row] = f
		}
	}
}

func sideBySide(a, b *side) [][]string {
	rows := [][]string{{"row", "1", "2", "1 better than 2", "others' load", "detail of 1", "detail of 2"}}
	seen := map[string]bool{}
	for _, e := range expectations {
		x, inA := a.best[e.key]
		y, inB := b.best[e.key]
		if seen[e.key] || !inA || !inB {
			continue
		}
		seen[e.key] = true
		quotient := ratio(x.Value, y.Value)
		if e.unit != perSecond {
			quotient = ratio(y.Value, x.Value)
		}
		for _, f := range []*figure{&x, &y} {
			if f.Error != "" {
				f.Detail = "failed: " + f.Error
			}
		}
		rows = append(rows, []string{e.name, e.unit.write(x.Value), e.unit.write(y.Value), quotient,
			fmt.Sprintf("%.0f %%, %.0f %%", 100*x.Others, 100*y.Others), x.Detail, y.Detail})
	}
	return rows
}
