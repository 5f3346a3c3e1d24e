package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// flatShare is the share of its mean by which a figure may change over the judged time and still be called flat.
const flatShare = 0.05

// slope returns the change of a figure per second, by the method of Theil and Sen: the median of the slopes between
// all pairs of samples. Up to a quarter of the samples may be outliers without a great effect on it, for example those
// during a compaction.
func slope(seconds, values []float64) float64 {
	var slopes []float64
	for i := range values {
		for j := i + 1; j < len(values); j++ {
			if d := seconds[j] - seconds[i]; d > 0 {
				slopes = append(slopes, (values[j]-values[i])/d)
			}
		}
	}
	return median(slopes)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

func mean(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// trend is the development of a figure over the last three quarters of a run.
type trend struct {
	mean, least, most float64
	change            float64 // slope times duration
	verdict           string
}

// judge reports whether a figure was flat over the last three quarters of the samples: whether its slope changes it,
// over that time, by less than flatShare of its mean or by less than the floor.
func judge(c column, samples []sample, index int) trend {
	samples = samples[len(samples)/4:]
	var seconds, values []float64
	for _, s := range samples {
		seconds, values = append(seconds, s.at.Seconds()), append(values, s.values[index])
	}
	if len(values) < 2 {
		return trend{verdict: "too few samples"}
	}
	t := trend{mean: mean(values), least: slices.Min(values), most: slices.Max(values)}
	t.change = slope(seconds, values) * (seconds[len(seconds)-1] - seconds[0])
	switch {
	case math.Abs(t.change) <= max(c.floor, flatShare*math.Abs(t.mean)):
		t.verdict = "flat"
	case t.change > 0:
		t.verdict = "**grows**"
	default:
		t.verdict = "falls"
	}
	return t
}

// report prints the tables.
func report(out io.Writer, o *options, samples []sample, failures []string) error {
	var b strings.Builder
	fmt.Fprintf(&b,
		"%v at %d writes/s, %d watchers, a sample every %v. Means of %v; p50 and p99 are those of the samples.\n\n",
		o.duration, o.rate, o.watchers, o.sample, o.interval)
	intervals(&b, o.interval, samples)
	fmt.Fprintf(&b,
		"\nOver the last three quarters; the change is the slope of Theil and Sen times that duration,"+
			" and a figure is flat if\n"+
			"that is at most %.0f %% of its mean, or at most the floor:\n\n", 100*flatShare)
	fmt.Fprint(
		&b,
		"| figure | mean | least | most | change | share of the mean | floor | verdict |\n| --- | --- | --- | --- | --- | "+
			"--- | --- | --- |\n",
	)
	grows := 0
	for i, c := range columns() {
		if !c.judged {
			continue
		}
		t := judge(c, samples, i)
		share := 0.0
		if t.mean != 0 {
			share = 100 * t.change / t.mean
		}
		if t.verdict != "flat" && t.verdict != "falls" {
			grows++
		}
		fmt.Fprintf(
			&b, "| %s | %.2f | %.2f | %.2f | %+.2f | %+.1f %% | %g | %s |\n", c.name, t.mean, t.least, t.most, t.change, share,
			c.floor, t.verdict,
		)
	}
	fmt.Fprintf(&b, "\nFigures that grow: %d. Failures: %d kinds.\n", grows, len(failures))
	for _, f := range failures {
		fmt.Fprintf(&b, "- %s\n", f)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// intervals prints the means of the figures, one row for each interval. Errors are added up.
func intervals(b *strings.Builder, length time.Duration, samples []sample) {
	b.WriteString("| minutes |")
	for _, c := range columns() {
		fmt.Fprintf(b, " %s |", c.name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(columns())) + "\n")
	for begin := time.Duration(0); len(samples) > 0; begin += length {
		n := 0
		for n < len(samples) && samples[n].at <= begin+length {
			n++
		}
		if n > 0 {
			fmt.Fprintf(b, "| %.3g to %.3g |", begin.Minutes(), (begin + length).Minutes())
			for i, c := range columns() {
				var values []float64
				for _, s := range samples[:n] {
					values = append(values, s.values[i])
				}
				value := mean(values)
				if c.name == "errors" {
					value *= float64(n)
				}
				fmt.Fprintf(b, " %.4g |", value)
			}
			b.WriteString("\n")
		}
		samples = samples[n:]
	}
}
