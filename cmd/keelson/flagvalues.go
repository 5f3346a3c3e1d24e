package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// invertedValue is the value of a boolean flag that is the opposite of a field.
type invertedValue struct{ off *bool }

// Set implements pflag.Value.
func (v *invertedValue) Set(s string) error {
	on, err := strconv.ParseBool(s)
	*v.off = !on
	return err
}

// String implements pflag.Value.
func (v *invertedValue) String() string { return strconv.FormatBool(v.off == nil || !*v.off) }

// Type implements pflag.Value.
func (v *invertedValue) Type() string { return "bool" }

// IsBoolFlag reports that the flag needs no value.
func (v *invertedValue) IsBoolFlag() bool { return true }

// secondsValue is the value of a flag that is a number of seconds, without a unit.
type secondsValue struct{ duration *time.Duration }

// Set implements pflag.Value.
func (v *secondsValue) Set(s string) error {
	n, err := strconv.ParseInt(s, 0, 64)
	*v.duration = time.Duration(n) * time.Second
	return err
}

// String implements pflag.Value.
func (v *secondsValue) String() string {
	if v.duration == nil {
		return "0"
	}
	return strconv.FormatInt(int64(*v.duration/time.Second), 10)
}

// Type implements pflag.Value.
func (v *secondsValue) Type() string { return "int" }

// claimsValue is the value of a flag of the form name=value. The value may contain commas.
type claimsValue struct{ claims *map[string]string }

// Set implements pflag.Value.
func (v *claimsValue) Set(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok {
		return errors.New("malformed pair, expect string=string")
	}
	if *v.claims == nil {
		*v.claims = map[string]string{}
	}
	(*v.claims)[strings.TrimSpace(name)] = strings.TrimSpace(value)
	return nil
}

// String implements pflag.Value.
func (v *claimsValue) String() string {
	if v.claims == nil || len(*v.claims) == 0 {
		return ""
	}
	return fmt.Sprint(*v.claims)
}

// Type implements pflag.Value.
func (v *claimsValue) Type() string { return "claim=value" }
