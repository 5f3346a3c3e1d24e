package core

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

// nodeLost is the reason of a pod whose node does not answer.
const nodeLost = "NodeLost"

// podCells returns what kubectl get pods shows. Restarts have the time of the last one, such as 3 (5m ago). The
// time is an Elapsed, because it depends on when the response is written.
func podCells(p *corev1.Pod) []any {
	r := readPod(p)
	var restarts any = fmt.Sprint(r.restarts)
	if r.restarts != 0 && !r.lastRestart.IsZero() {
		restarts = registry.Elapsed{Before: fmt.Sprint(r.restarts) + " (", Since: r.lastRestart, After: " ago)"}
	}
	ip := p.Status.PodIP
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	gates := table.None
	if n := len(p.Spec.ReadinessGates); n > 0 {
		open := 0
		for _, g := range p.Spec.ReadinessGates {
			if podCondition(p, g.ConditionType) {
				open++
			}
		}
		gates = fmt.Sprintf("%d/%d", open, n)
	}
	return []any{
		p.Name, fmt.Sprintf("%d/%d", r.ready, r.containers), r.status, restarts, table.AgeOf(p.CreationTimestamp),
		table.OrNone(ip), table.OrNone(p.Spec.NodeName), table.OrNone(p.Status.NominatedNodeName), gates,
	}
}

// finishedConditions marks the rows of pods that have ended, so that clients can show them with less emphasis.
func finishedConditions(p *corev1.Pod) []metav1.TableRowCondition {
	message := ""
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		message = "The pod has completed successfully."
	case corev1.PodFailed:
		message = "The pod failed."
	default:
		return nil
	}
	return []metav1.TableRowCondition{{
		Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(p.Status.Phase), Message: message,
	}}
}

// podReading is what a table says of a pod's containers.
type podReading struct {
	status            string
	ready, containers int
	restarts          int
	lastRestart       time.Time
}

func (r *podReading) count(c *corev1.ContainerStatus) {
	r.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && r.lastRestart.Before(t.FinishedAt.Time) {
		r.lastRestart = t.FinishedAt.Time
	}
}

// readPod computes the column Status. What is more specific replaces what is less so: the phase, the reason of
// the status, scheduling gates, the state of the containers, and the deletion.
func readPod(p *corev1.Pod) podReading {
	r := podReading{status: string(p.Status.Phase), containers: len(p.Spec.Containers)}
	if p.Status.Reason != "" {
		r.status = p.Status.Reason
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			r.status = corev1.PodReasonSchedulingGated
		}
	}
	sidecars, initializing := r.readInit(p)
	if !initializing || podCondition(p, corev1.PodInitialized) {
		// Once the pod has started, sidecars are the only init containers that count.
		r.restarts, r.lastRestart = sidecars.restarts, sidecars.lastRestart
		r.readContainers(p)
	}
	switch {
	case p.DeletionTimestamp != nil && p.Status.Reason == nodeLost:
		r.status = "Unknown"
	case p.DeletionTimestamp != nil && !podFinished(p):
		r.status = "Terminating"
	}
	return r
}

// readInit reads init containers up to the one that is not done, and returns
// what sidecars alone add.
// The status is Init:1/3 with the number of init containers that are done, or Init: and the reason of a
// failure, such as Init:CrashLoopBackOff. A sidecar is done when it has started.
func (r *podReading) readInit(p *corev1.Pod) (sidecars podReading, initializing bool) {
	sidecar := map[string]bool{}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; isSidecar(c) {
			sidecar[c.Name] = true
			r.containers++
		}
	}
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		r.count(c)
		if sidecar[c.Name] {
			sidecars.count(c)
		}
		terminated, waiting := c.State.Terminated, c.State.Waiting
		switch {
		case terminated != nil && terminated.ExitCode == 0:
			continue
		case sidecar[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				r.ready++
			}
			continue
		case terminated != nil:
			r.status = "Init:" + exitReason(terminated)
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing":
			r.status = "Init:" + waiting.Reason
		default:
			r.status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return sidecars, true
	}
	return sidecars, false
}

// readContainers leaves the reason of the first container that has one.
// It goes backwards, so the reason of an earlier container replaces that of a later one.
func (r *podReading) readContainers(p *corev1.Pod) {
	running := false
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		r.count(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			r.status = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			r.status = exitReason(c.State.Terminated)
		case c.Ready && c.State.Running != nil:
			running = true
			r.ready++
		}
	}
	// Some containers have ended while others run. Without Ready the pod is shown as NotReady, not as
	// Completed.
	if r.status == "Completed" && running {
		r.status = "NotReady"
		if podCondition(p, corev1.PodReady) {
			r.status = "Running"
		}
	}
}

// exitReason returns the reason of the runtime, such as Error or OOMKilled, or else what ended the container.
func exitReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

// ContainerNames returns the names and the images of a pod's containers, separated by commas.
func ContainerNames(s *corev1.PodSpec) (names, images string) {
	var n, i []string
	for _, c := range s.Containers {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}
