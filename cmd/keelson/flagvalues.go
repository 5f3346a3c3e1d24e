package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keelson-dev/keelson/config"
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

// bytesValue is the value of a flag for a number of bytes. It may have a binary or decimal suffix, as quantities
// of Kubernetes have (512Mi, 1.5Gi, 2G).
type bytesValue struct{ bytes *config.Bytes }

// Set implements pflag.Value.
func (v *bytesValue) Set(s string) error {
	quantity, err := resource.ParseQuantity(s)
	if err != nil {
		return fmt.Errorf("%q is no number of bytes such as 512Mi or 2Gi", s)
	}
	*v.bytes = config.Bytes(quantity.Value())
	return nil
}

// String implements pflag.Value.
func (v *bytesValue) String() string {
	if v.bytes == nil || *v.bytes == 0 {
		return ""
	}
	return resource.NewQuantity(int64(*v.bytes), resource.BinarySI).String()
}

// Type implements pflag.Value.
func (v *bytesValue) Type() string { return "bytes" }

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
