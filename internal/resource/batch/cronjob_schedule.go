package batch

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// checkSchedule returns an error unless a schedule has five valid fields (minute, hour, day of
// the month, month, day of the week) or is a descriptor such as "@daily".
// The grammar and the messages are those of the function ParseStandard of github.com/robfig/cron/v3, with which
// the controller parses schedules. There is no field for seconds: "0 0 * * * *" is refused. It accepts a time zone
// at the beginning, which validateSchedule refuses for other reasons.
func checkSchedule(text string) error {
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		zone, rest, _ := strings.Cut(text, " ")
		_, name, _ := strings.Cut(zone, "=")
		if _, err := time.LoadLocation(name); err != nil {
			return fmt.Errorf("provided bad location %s: %v", name, err)
		}
		text = strings.TrimSpace(rest)
	}
	if strings.HasPrefix(text, "@") {
		return checkDescriptor(text)
	}
	fields := strings.Fields(text)
	if len(fields) != len(scheduleFields) {
		return fmt.Errorf("expected exactly %d fields, found %d: %v", len(scheduleFields), len(fields), fields)
	}
	for i, f := range fields {
		if err := scheduleFields[i].check(f); err != nil {
			return err
		}
	}
	return nil
}

// checkDescriptor accepts names of schedules, and intervals such as "@every 1h30m". "@reboot", which other
// implementations of cron have, is refused.
func checkDescriptor(text string) error {
	switch text {
	case "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly":
		return nil
	}
	if every, ok := strings.CutPrefix(text, "@every "); ok {
		if _, err := time.ParseDuration(every); err != nil {
			return fmt.Errorf("failed to parse duration %s: %s", text, err)
		}
		return nil
	}
	return fmt.Errorf("unrecognized descriptor: %s", text)
}

// scheduleField has the range of a field's values, and the names of values.
type scheduleField struct {
	min, max uint
	names    map[string]uint
}

// scheduleFields are the fields in the order of a schedule. Unlike in crontab(5), the day of the week 7 is not
// accepted for Sunday.
var scheduleFields = []scheduleField{
	{0, 59, nil}, {0, 23, nil}, {1, 31, nil},
	{1, 12, nameValues(1, "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")},
	{0, 6, nameValues(0, "sun", "mon", "tue", "wed", "thu", "fri", "sat")},
}

func nameValues(first uint, names ...string) map[string]uint {
	m := make(map[string]uint, len(names))
	for i, name := range names {
		m[name] = first + uint(i)
	}
	return m
}

// check checks a list of ranges. It ignores empty parts, as the parser of the controller does: "1,,2" is valid.
func (f scheduleField) check(text string) error {
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		if err := f.checkRange(part); err != nil {
			return err
		}
	}
	return nil
}

// checkRange checks "*", "?" (the same as "*"), N or N-M, with or without a step after a slash. N/STEP means from
// N to the highest value: 10/15 are the minutes 10, 25, 40 and 55. A range cannot wrap around: "fri-mon" is
// refused.
func (f scheduleField) checkRange(text string) error {
	rangeAndStep := strings.Split(text, "/")
	ends := strings.Split(rangeAndStep[0], "-")
	start, end := f.min, f.max
	single := len(ends) == 1
	if ends[0] != "*" && ends[0] != "?" {
		var err error
		if start, err = f.value(ends[0]); err != nil {
			return err
		}
		switch len(ends) {
		case 1:
			end = start
		case 2:
			if end, err = f.value(ends[1]); err != nil {
				return err
			}
		default:
			return fmt.Errorf("too many hyphens: %s", text)
		}
	}
	step := uint(1)
	switch len(rangeAndStep) {
	case 1:
	case 2:
		var err error
		if step, err = parseNumber(rangeAndStep[1]); err != nil {
			return err
		}
		if single {
			end = f.max
		}
	default:
		return fmt.Errorf("too many slashes: %s", text)
	}
	switch {
	case start < f.min:
		return fmt.Errorf("beginning of range (%d) below minimum (%d): %s", start, f.min, text)
	case end > f.max:
		return fmt.Errorf("end of range (%d) above maximum (%d): %s", end, f.max, text)
	case start > end:
		return fmt.Errorf("beginning of range (%d) beyond end of range (%d): %s", start, end, text)
	case step == 0:
		return fmt.Errorf("step of range should be a positive number: %s", text)
	}
	return nil
}

// value returns the number of a name in any case, such as MON, or the number itself.
func (f scheduleField) value(text string) (uint, error) {
	if n, ok := f.names[strings.ToLower(text)]; ok {
		return n, nil
	}
	return parseNumber(text)
}

func parseNumber(text string) (uint, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("failed to parse int from %s: %s", text, err)
	}
	if n < 0 {
		return 0, fmt.Errorf("negative number (%d) not allowed: %s", n, text)
	}
	return uint(n), nil
}
