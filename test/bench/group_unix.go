//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup starts the command in a process group of its own, so that all its child processes can be ended.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func interruptGroup(c *exec.Cmd) error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }

func killGroup(c *exec.Cmd) error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
