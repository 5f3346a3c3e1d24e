package main

import (
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// offVar adds a flag that switches something on for which the configuration has a field that switches it off.
func offVar(f *pflag.FlagSet, off *bool, name, usage string) {
	f.VarPF(&offValue{off}, name, "", usage).NoOptDefVal = "true"
}

// offValue is the value of a boolean flag that is the opposite of a field.
type offValue struct{ off *bool }

// Set implements pflag.Value.
func (v *offValue) Set(s string) error {
	on, err := strconv.ParseBool(s)
	*v.off = !on
	return err
}

// String implements pflag.Value.
func (v *offValue) String() string { return strconv.FormatBool(v.off == nil || !*v.off) }

// Type implements pflag.Value.
func (v *offValue) Type() string { return "bool" }

// IsBoolFlag reports that the flag needs no value.
func (v *offValue) IsBoolFlag() bool { return true }

// secondsVar adds a flag of a duration that is given in whole seconds, without a unit. Its default is the present value.
func secondsVar(f *pflag.FlagSet, d *time.Duration, name, usage string) {
	f.Var(&secondsValue{d}, name, usage)
}

// secondsValue is the value of a flag in whole seconds.
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
