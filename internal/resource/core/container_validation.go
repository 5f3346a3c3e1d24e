package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/names"
	"github.com/keelson-dev/keelson/internal/resource/field"
)

// podValidator validates the containers of a pod. It has the parts of the pod that they refer
// to.
type podValidator struct {
	spec *corev1.PodSpec
	// volumes has the valid volumes of the pod by name.
	volumes map[string]*corev1.VolumeSource
	claims  sets.Set[string]
	// pod is false for a pod template of a workload.
	pod   bool
	rules podRules
}

// hostUsers reports whether the pod is in the user namespace of the host, which is the default (KEP-127).
func (p *podValidator) hostUsers() bool { return p.spec.HostUsers == nil || *p.spec.HostUsers }

// validateContainers validates the regular containers. They run at the same time on one node, so a host port
// may be used once among all of them.
func (p *podValidator) validateContainers(path *field.Path) field.ErrorList {
	if len(p.spec.Containers) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	names := sets.New[string]()
	for i := range p.spec.Containers {
		c, at := &p.spec.Containers[i], path.Index(i)
		errs = append(errs, p.validateContainer(c, at)...)
		errs = append(errs, field.Unique(names, at.Child("name"), c.Name)...)
		errs = append(errs, p.validateHooks(c, at)...)
		errs = append(errs, p.validateContainerRestart(c, at, true)...)
	}
	return append(errs, hostPortConflicts(p.spec.Containers, path)...)
}

// validateInitContainers validates init containers. One that is not a sidecar (KEP-753) runs to its end before
// the next one starts. So it has no probes and no hooks, and it is not restarted for a resize.
func (p *podValidator) validateInitContainers(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i := range p.spec.Containers {
		names.Insert(p.spec.Containers[i].Name)
	}
	unnamed := names.Has("")
	for i := range p.spec.InitContainers {
		c, at := &p.spec.InitContainers[i], path.Index(i)
		errs = append(errs, p.validateContainer(c, at)...)
		errs = append(errs, field.Unique(names, at.Child("name"), c.Name)...)
		if c.Name == "" && !unnamed {
			names.Delete("") // the names of init containers are only compared if they have one
		}
		// Host ports are compared within one container, because init containers run one after the other.
		// kube-apiserver makes no exception for sidecars.
		errs = append(errs, hostPortConflicts(p.spec.InitContainers[i:i+1], path)...)
		errs = append(errs, p.validateContainerRestart(c, at, false)...)
		if isSidecar(c) {
			errs = append(errs, p.validateHooks(c, at)...)
			continue
		}
		for k, r := range c.ResizePolicy {
			errs = append(errs, field.InvalidIf(r.RestartPolicy == corev1.RestartContainer,
				at.Child("resizePolicy").Index(k).Child("restartPolicy"), r.RestartPolicy,
				"must not be set to 'RestartContainer' for non-sidecar initContainers")...)
		}
		const onlySidecars = "may not be set for init containers without restartPolicy=Always"
		errs = append(errs, field.ForbiddenIf(c.Lifecycle != nil, at.Child("lifecycle"), onlySidecars)...)
		errs = append(errs, field.ForbiddenIf(c.LivenessProbe != nil, at.Child("livenessProbe"), onlySidecars)...)
		errs = append(errs, field.ForbiddenIf(c.ReadinessProbe != nil, at.Child("readinessProbe"), onlySidecars)...)
		errs = append(errs, field.ForbiddenIf(c.StartupProbe != nil, at.Child("startupProbe"), onlySidecars)...)
	}
	return errs
}

// validateContainer validates the fields that all kinds of containers have.
// A volume or an environment variable that refers to another object is not looked up: the object may be created
// after the pod, and the kubelet waits for it.
func (p *podValidator) validateContainer(c *corev1.Container, path *field.Path) field.ErrorList {
	errs := field.NotEmptyAnd(path.Child("name"), c.Name, field.DNSLabel)
	// A template may have no image, because something else may set it later.
	// Such a template has a space as a placeholder: the empty string is refused in templates too.
	image := path.Child("image")
	errs = append(errs, field.NotEmpty(image, c.Image)...)
	errs = append(errs, field.InvalidIf(strings.TrimSpace(c.Image) != c.Image && p.pod, image, c.Image,
		"must not have leading or trailing whitespace")...)
	errs = append(errs, field.OneOf(path.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validatePorts(c.Ports, path.Child("ports"))...)
	errs = append(errs, p.validateEnv(c.Env, path.Child("env"))...)
	errs = append(errs, validateEnvFrom(c.EnvFrom, path.Child("envFrom"))...)
	errs = append(errs, p.validateMounts(c, path.Child("volumeMounts"))...)
	errs = append(errs, p.validateDevices(c, path.Child("volumeDevices"))...)
	errs = append(errs, field.OneOf(path.Child("imagePullPolicy"), c.ImagePullPolicy, corev1.PullAlways,
		corev1.PullIfNotPresent, corev1.PullNever)...)
	errs = append(errs, ValidateResourceRequirements(&c.Resources, p.claims, path.Child("resources"))...)
	errs = append(errs, p.validateResizePolicy(c.ResizePolicy, path.Child("resizePolicy"))...)
	return append(errs, p.validateSecurityContext(c.SecurityContext, path.Child("securityContext"))...)
}

// validateHooks validates lifecycle hooks and probes. A failed readiness probe does not end the container, so a
// grace period for it has no meaning (KEP-2238).
func (p *podValidator) validateHooks(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	grace := p.spec.TerminationGracePeriodSeconds
	if l := c.Lifecycle; l != nil {
		path := path.Child("lifecycle")
		validate := func(h *corev1.LifecycleHandler, at *field.Path) field.ErrorList {
			return validateLifecycleHandler(h, grace, at)
		}
		errs = append(errs, field.IfPresent(path.Child("postStart"), l.PostStart, validate)...)
		errs = append(errs, field.IfPresent(path.Child("preStop"), l.PreStop, validate)...)
	}
	errs = append(errs, validateProbe(c.LivenessProbe, path.Child("livenessProbe"), true)...)
	errs = append(errs, validateProbe(c.ReadinessProbe, path.Child("readinessProbe"), false)...)
	errs = append(errs, validateProbe(c.StartupProbe, path.Child("startupProbe"), true)...)
	if r := c.ReadinessProbe; r != nil && r.TerminationGracePeriodSeconds != nil {
		errs = append(errs, field.Invalid(path.Child("readinessProbe", "terminationGracePeriodSeconds"),
			*r.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
	}
	return errs
}

// validateContainerRestart validates the restart policy of a container and its rules. looseRules means that restart rules are
// validated although the container has no policy. As in kube-apiserver, it is true for containers and false for init
// containers.
func (p *podValidator) validateContainerRestart(
	c *corev1.Container, path *field.Path, looseRules bool,
) field.ErrorList {
	policy := path.Child("restartPolicy")
	if c.RestartPolicy == nil && len(c.RestartPolicyRules) == 0 {
		return nil
	}
	errs := field.OptionalOneOf(policy, c.RestartPolicy, corev1.ContainerRestartPolicyAlways,
		corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
	if c.RestartPolicy == nil {
		errs = append(errs, field.Required(policy, "must specify restartPolicy when restart rules are used"))
		if !looseRules {
			return errs
		}
	}
	// The limits of rules and of exit codes are documented in the API. See KEP-5307.
	const most = 20
	rules := path.Child("restartPolicyRules")
	errs = append(errs, field.MaxItems(rules, len(c.RestartPolicyRules), most)...)
	actions := []corev1.ContainerRestartRuleAction{
		corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers}
	if p.rules.noRestartAll {
		actions = actions[:1]
	}
	for i, r := range c.RestartPolicyRules {
		at := rules.Index(i)
		errs = append(errs, field.OneOf(at.Child("action"), r.Action, actions...)...)
		if r.ExitCodes == nil {
			errs = append(errs, field.Required(at.Child("exitCodes"), "must be specified"))
			continue
		}
		errs = append(errs, field.OneOf(at.Child("exitCodes", "operator"), r.ExitCodes.Operator,
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		const mostCodes = 255
		errs = append(errs, field.MaxItems(at.Child("exitCodes", "values"), len(r.ExitCodes.Values), mostCodes)...)
	}
	return errs
}

// validateProbe validates a probe. once is true for liveness and startup probes, whose successThreshold must be
// 1, as the API documents. A 0 never gets here for a field with a default: see defaultProbe.
func validateProbe(probe *corev1.Probe, path *field.Path, once bool) field.ErrorList {
	if probe == nil {
		return nil
	}
	errs := validateProbeHandler(&probe.ProbeHandler, path)
	errs = append(errs, field.NonNegative(path.Child("initialDelaySeconds"), probe.InitialDelaySeconds)...)
	errs = append(errs, field.NonNegative(path.Child("timeoutSeconds"), probe.TimeoutSeconds)...)
	errs = append(errs, field.NonNegative(path.Child("periodSeconds"), probe.PeriodSeconds)...)
	errs = append(errs, field.NonNegative(path.Child("successThreshold"), probe.SuccessThreshold)...)
	errs = append(errs, field.NonNegative(path.Child("failureThreshold"), probe.FailureThreshold)...)
	errs = append(errs, field.AtLeast(path.Child("terminationGracePeriodSeconds"), probe.TerminationGracePeriodSeconds, 1,
		"must be greater than 0")...)
	return append(errs, field.InvalidIf(once && probe.SuccessThreshold != 1, path.Child("successThreshold"),
		probe.SuccessThreshold, "must be 1")...)
}

// handlerChecks validates the first handler that is set, and returns errors for further ones.
type handlerChecks struct {
	path *field.Path
	n    int
	errs field.ErrorList
}

func (h *handlerChecks) add(name string, set bool, check func(*field.Path) field.ErrorList) {
	if !set {
		return
	}
	if h.n++; h.n > 1 {
		h.errs = append(h.errs, field.Forbidden(h.path.Child(name), "may not specify more than 1 handler type"))
		return
	}
	h.errs = append(h.errs, check(h.path.Child(name))...)
}

func (h *handlerChecks) done() field.ErrorList {
	return append(h.errs, field.RequiredIf(h.n == 0, h.path, "must specify a handler type")...)
}

func validateProbeHandler(p *corev1.ProbeHandler, path *field.Path) field.ErrorList {
	h := &handlerChecks{path: path}
	h.add("exec", p.Exec != nil, func(at *field.Path) field.ErrorList { return validateExec(p.Exec, at) })
	h.add("httpGet", p.HTTPGet != nil, func(at *field.Path) field.ErrorList { return validateHTTPGet(p.HTTPGet, at) })
	h.add("tcpSocket", p.TCPSocket != nil, func(at *field.Path) field.ErrorList {
		return portNumberOrName(at.Child("port"), p.TCPSocket.Port)
	})
	h.add("grpc", p.GRPC != nil, func(at *field.Path) field.ErrorList {
		return append(field.PortNumber(at.Child("port"), p.GRPC.Port),
			field.OptionalOneOf(at.Child("mode"), p.GRPC.Mode, corev1.GRPCProbeModePlaintext, corev1.GRPCProbeModeTLS)...)
	})
	return h.done()
}

// validateLifecycleHandler validates a hook. grace is the grace period of the pod in seconds. A longer sleep
// (KEP-3960) would always be cut short, so it is refused. A sleep of 0 seconds is valid (KEP-4818).
func validateLifecycleHandler(l *corev1.LifecycleHandler, grace *int64, path *field.Path) field.ErrorList {
	h := &handlerChecks{path: path}
	h.add("exec", l.Exec != nil, func(at *field.Path) field.ErrorList { return validateExec(l.Exec, at) })
	h.add("httpGet", l.HTTPGet != nil, func(at *field.Path) field.ErrorList { return validateHTTPGet(l.HTTPGet, at) })
	h.add("tcpSocket", l.TCPSocket != nil, func(at *field.Path) field.ErrorList {
		return portNumberOrName(at.Child("port"), l.TCPSocket.Port)
	})
	h.add("sleep", l.Sleep != nil, func(at *field.Path) field.ErrorList {
		most := ptr.Deref(grace, 0)
		if s := l.Sleep.Seconds; s < 0 || s > most {
			return field.ErrorList{
				field.Invalid(at, s, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", most))}
		}
		return nil
	})
	return h.done()
}

func validateExec(a *corev1.ExecAction, path *field.Path) field.ErrorList {
	return field.RequiredIf(len(a.Command) == 0, path.Child("command"), "")
}

// validateHTTPGet validates the HTTP request of a probe or a hook. Errors about the names of headers have the
// path httpHeaders, without an index.
func validateHTTPGet(a *corev1.HTTPGetAction, path *field.Path) field.ErrorList {
	errs := field.NotEmpty(path.Child("path"), a.Path)
	errs = append(errs, portNumberOrName(path.Child("port"), a.Port)...)
	errs = append(errs, field.OneOf(path.Child("scheme"), a.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	for _, h := range a.HTTPHeaders {
		errs = append(errs, field.Messages(path.Child("httpHeaders"), h.Name, validation.IsHTTPHeaderName(h.Name))...)
	}
	if a.Protocol != nil {
		errs = append(errs, validateHTTPProtocol(a, path)...)
	}
	return errs
}

// validateHTTPProtocol allows HTTP/2 without TLS to the pod itself.
func validateHTTPProtocol(a *corev1.HTTPGetAction, path *field.Path) field.ErrorList {
	at := path.Child("protocol")
	switch {
	case *a.Protocol != corev1.HTTPProtocolHTTP2:
		return field.OneOf(at, *a.Protocol, corev1.HTTPProtocolHTTP1, corev1.HTTPProtocolHTTP2)
	case a.Scheme != corev1.URISchemeHTTP:
		return field.ErrorList{field.Invalid(at, *a.Protocol, "is only supported with HTTP (H2C)")}
	}
	return field.InvalidIf(a.Host != "", path.Child("host"), a.Host, "must be empty when `protocol` is \"HTTP2\"")
}

// validatePorts validates the ports of one container. Names are unique, numbers are not: the same port may be
// there twice, and gives a warning only (portConflict). A container port of 0 counts as missing, a host port of
// 0 means that the host does not open a port.
func validatePorts(ports []corev1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	used := sets.New[string]()
	for i, p := range ports {
		at := path.Index(i)
		if p.Name != "" {
			if msgs := names.IsPortName(p.Name); len(msgs) > 0 {
				errs = append(errs, field.Messages(at.Child("name"), p.Name, msgs)...)
			} else {
				errs = append(errs, field.Unique(used, at.Child("name"), p.Name)...)
			}
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, field.PortNumber(at.Child("containerPort"), p.ContainerPort)...)
		}
		if p.HostPort != 0 {
			errs = append(errs, field.PortNumber(at.Child("hostPort"), p.HostPort)...)
		}
		errs = append(errs, protocol(at.Child("protocol"), p.Protocol)...)
	}
	return errs
}

// hostPortConflicts returns errors for host ports that are used twice with the same protocol and host IP. The
// host IPs are compared as text. So a port without a host IP, which means all addresses, does not conflict with
// the same port of one address.
func hostPortConflicts(containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := sets.New[string]()
	for i := range containers {
		for j, p := range containers[i].Ports {
			if p.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			errs = append(errs, field.DuplicateIf(taken.Has(key), path.Index(i).Child("ports").Index(j).Child("hostPort"),
				key)...)
			taken.Insert(key)
		}
	}
	return errs
}

// validateResizePolicy validates how changes of resources are applied to a running container (KEP-1287). A pod
// that never restarts its containers cannot ask for a restart. As in kube-apiserver, only the errors about
// duplicates have an index.
func (p *podValidator) validateResizePolicy(policies []corev1.ContainerResizePolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[corev1.ResourceName]()
	for i, r := range policies {
		errs = append(errs, field.Unique(seen, path.Index(i), r.ResourceName)...)
		errs = append(errs, field.RequiredOneOf(path, r.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)...)
		errs = append(errs, field.RequiredOneOf(path, r.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)...)
		errs = append(errs, field.InvalidIf(p.spec.RestartPolicy == corev1.RestartPolicyNever &&
			r.RestartPolicy != corev1.NotRequired, path, r.RestartPolicy,
			"must be 'NotRequired' when pod `restartPolicy` is 'Never'")...)
	}
	return errs
}

// validateMounts validates the volume mounts of a container. A volume is either mounted or used as a device,
// not both. As in kube-apiserver, errors about a subPath that is not a local path, and errors about
// propagation, have a path without an index.
func (p *podValidator) validateMounts(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths := sets.New[string]()
	// Paths by name. If a name is there twice, kube-apiserver takes the last path.
	devices := make(map[string]string, len(c.VolumeDevices))
	for _, d := range c.VolumeDevices {
		devices[d.Name] = d.DevicePath
	}
	for i := range c.VolumeMounts {
		m, at := &c.VolumeMounts[i], path.Index(i)
		errs = append(errs, field.NotEmpty(at.Child("name"), m.Name)...)
		if p.volumes[m.Name] == nil {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		errs = append(errs, field.NotEmpty(at.Child("mountPath"), m.MountPath)...)
		errs = append(errs, field.InvalidIf(paths.Has(m.MountPath), at.Child("mountPath"), m.MountPath,
			"must be unique")...)
		paths.Insert(m.MountPath)
		if _, ok := devices[m.Name]; ok {
			errs = append(errs, field.Invalid(at.Child("name"), m.Name, "must not already exist in volumeDevices"))
		}
		errs = append(errs, field.InvalidIf(hasValue(devices, m.MountPath), at.Child("mountPath"), m.MountPath,
			"must not already exist as a path in volumeDevices")...)
		errs = append(errs, field.IfSet(path.Child("subPath"), m.SubPath, validateLocalPath)...)
		if m.SubPathExpr != "" {
			errs = append(errs, field.InvalidIf(m.SubPath != "", at.Child("subPathExpr"), m.SubPathExpr,
				"subPathExpr and subPath are mutually exclusive")...)
			errs = append(errs, validateLocalPath(path.Child("subPathExpr"), m.SubPathExpr)...)
		}
		errs = append(errs, validatePropagation(m, c, path)...)
		errs = append(errs, p.validateBindOptions(m, at.Child("bindMountOptions"))...)
	}
	return errs
}

func (p *podValidator) validateBindOptions(m *corev1.VolumeMount, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, option := range m.BindMountOptions {
		errs = append(errs, field.OneOf(path.Index(i), option, string(corev1.BindMountOptionNoDev),
			string(corev1.BindMountOptionNoExec), string(corev1.BindMountOptionNoSUID))...)
		errs = append(errs, field.Unique(seen, path.Index(i), option)...)
	}
	if source := p.volumes[m.Name]; source != nil && source.Image != nil {
		errs = append(errs, field.InvalidIf(len(m.BindMountOptions) > 0, path, m.BindMountOptions,
			"bindMountOptions may not be used with image volumes")...)
	}
	return errs
}

// validatePropagation validates how mounts below a volume spread between host and container. With
// Bidirectional, mounts that the container makes appear on the host, so only privileged containers may ask for
// it. A recursive read-only mount (KEP-3857) excludes all propagation.
func validatePropagation(m *corev1.VolumeMount, c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if mp := m.MountPropagation; mp != nil {
		at := path.Child("mountPropagation")
		errs = append(errs, field.OneOf(at, *mp, corev1.MountPropagationBidirectional,
			corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)...)
		errs = append(errs, field.ForbiddenIf(*mp == corev1.MountPropagationBidirectional &&
			(c.SecurityContext == nil || c.SecurityContext.Privileged == nil || !*c.SecurityContext.Privileged), at,
			"Bidirectional mount propagation is available only to privileged containers")...)
	}
	rro := m.RecursiveReadOnly
	if rro == nil {
		return errs
	}
	at := path.Child("recursiveReadOnly")
	switch *rro {
	case corev1.RecursiveReadOnlyDisabled:
	case corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible:
		errs = append(errs, field.ForbiddenIf(!m.ReadOnly, at, "may only be specified when readOnly is true")...)
		errs = append(errs, field.ForbiddenIf(m.MountPropagation != nil &&
			*m.MountPropagation != corev1.MountPropagationNone, at,
			"may only be specified when mountPropagation is None or not specified")...)
	default:
		errs = append(errs, field.NotSupported(at, *rro, []corev1.RecursiveReadOnlyMode{
			corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible}))
	}
	return errs
}

// hasValue reports whether a map has an entry with the value.
func hasValue(m map[string]string, value string) bool {
	for _, v := range m {
		if v == value {
			return true
		}
	}
	return false
}

// validateDevices validates the volumes that a container uses as block devices. Only volumes that a claim
// provides can be devices.
func (p *podValidator) validateDevices(c *corev1.Container, path *field.Path) field.ErrorList {
	errs := field.ForbiddenIf(len(c.VolumeDevices) > 0 && !p.hostUsers(), path, "when `hostUsers` is false")
	if len(c.VolumeDevices) == 0 {
		return nil
	}
	paths, names := sets.New[string](), sets.New[string]()
	mounts := map[string]string{} // as in validateMounts
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	for i, d := range c.VolumeDevices {
		at := path.Index(i)
		errs = append(errs, field.NotEmpty(at.Child("name"), d.Name)...)
		errs = append(errs, field.InvalidIf(names.Has(d.Name), at.Child("name"), d.Name, "must be unique")...)
		if source := p.volumes[d.Name]; source == nil {
			errs = append(errs, field.NotFound(at.Child("name"), d.Name))
		} else if source.PersistentVolumeClaim == nil && source.Ephemeral == nil {
			errs = append(errs, field.Invalid(at.Child("name"), d.Name,
				"can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
		}
		if d.DevicePath == "" {
			errs = append(errs, field.Required(at.Child("devicePath"), ""))
		} else {
			for range noBacksteps(at, d.DevicePath) {
				errs = append(errs, field.Invalid(at.Child("devicePath"), d.DevicePath, "can not contain backsteps ('..')"))
			}
		}
		errs = append(errs, field.InvalidIf(paths.Has(d.DevicePath), at.Child("devicePath"), d.DevicePath,
			"must be unique")...)
		if _, ok := mounts[d.Name]; ok {
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "must not already exist in volumeMounts"))
		}
		errs = append(errs, field.InvalidIf(hasValue(mounts, d.DevicePath), at.Child("devicePath"), d.DevicePath,
			"must not already exist as a path in volumeMounts")...)
		names.Insert(d.Name)
		paths.Insert(d.DevicePath)
	}
	return errs
}

// validateEnvFrom validates the sources of environment variables. As in kube-apiserver, errors about the number
// of sources have the path of the list, without an index.
func validateEnvFrom(sources []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, s := range sources {
		at := path.Index(i)
		errs = append(errs, field.IfSet(at.Child("prefix"), s.Prefix, relaxedEnvName)...)
		n := 0
		named := func(name string, at *field.Path) {
			n++
			errs = append(errs, field.NotEmptyAnd(at.Child("name"), name, func(p *field.Path, name string) field.ErrorList {
				return field.Messages(p, name, names.NameIsDNSSubdomain(name, true)) // it may end with a dash, as kube-apiserver allows
			})...)
		}
		if s.ConfigMapRef != nil {
			named(s.ConfigMapRef.Name, at.Child("configMapRef"))
		}
		if s.SecretRef != nil {
			named(s.SecretRef.Name, at.Child("secretRef"))
		}
		errs = append(errs, field.InvalidIf(n == 0, path, "", "must specify one of: `configMapRef` or `secretRef`")...)
		errs = append(errs, field.InvalidIf(n > 1, path, "", "may not have more than one field specified at a time")...)
	}
	return errs
}

func (p *podValidator) validateEnv(vars []corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range vars {
		at := path.Index(i)
		errs = append(errs, field.NotEmptyAnd(at.Child("name"), vars[i].Name, relaxedEnvName)...)
		errs = append(errs, p.validateValueFrom(&vars[i], at.Child("valueFrom"))...)
	}
	return errs
}

// envFields and fileFields are the fields of a pod that the downward API supports in
// environment variables and in files.
var (
	envFields = []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
		"spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
	fileFields = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
)

// validateValueFrom requires exactly one source for a variable with valueFrom, and no value. An empty value
// does not count as one: it cannot be told from a missing one.
func (p *podValidator) validateValueFrom(v *corev1.EnvVar, path *field.Path) field.ErrorList {
	from := v.ValueFrom
	if from == nil {
		return nil
	}
	var errs field.ErrorList
	n := 0
	if r := from.FieldRef; r != nil {
		n++
		errs = append(errs, validateFieldRef(r, envFields, path.Child("fieldRef"))...)
	}
	if r := from.ResourceFieldRef; r != nil {
		n++
		errs = append(errs, validateResourceFieldRef(r, path.Child("resourceFieldRef"), false)...)
	}
	if r := from.ConfigMapKeyRef; r != nil {
		n++
		at := path.Child("configMapKeyRef")
		errs = append(errs, field.DNSSubdomain(at.Child("name"), r.Name)...)
		errs = append(errs, configKey(at.Child("key"), r.Key)...)
	}
	if r := from.SecretKeyRef; r != nil {
		n++
		at := path.Child("secretKeyRef")
		errs = append(errs, field.DNSSubdomain(at.Child("name"), r.Name)...)
		errs = append(errs, configKey(at.Child("key"), r.Key)...)
	}
	if r := from.FileKeyRef; r != nil {
		n++
		errs = append(errs, p.validateFileKeyRef(r, path.Child("fileKeyRef"))...)
	}
	switch {
	case n == 0:
		errs = append(errs, field.Invalid(path, "",
			"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case v.Value != "":
		errs = append(errs, field.Invalid(path, "", "may not be specified when `value` is not empty"))
	case n > 1:
		errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
	}
	return errs
}

// validateFileKeyRef validates a variable whose value an init container writes to a file in an emptyDir volume
// (feature EnvFiles).
func (p *podValidator) validateFileKeyRef(r *corev1.FileKeySelector, path *field.Path) field.ErrorList {
	errs := field.NotEmptyAnd(path.Child("key"), r.Key, relaxedEnvName)
	errs = append(errs, field.NotEmptyAnd(path.Child("volumeName"), r.VolumeName, field.DNSLabel)...)
	errs = append(errs, field.NotEmptyAnd(path.Child("path"), r.Path, noBacksteps)...)
	// Unlike a mount, a reference finds volumes that are invalid.
	named := func(v corev1.Volume) bool { return v.Name == r.VolumeName }
	if i := slices.IndexFunc(p.spec.Volumes, named); i < 0 {
		errs = append(errs, field.NotFound(path.Child("volumeName"), r.VolumeName))
	} else if p.spec.Volumes[i].EmptyDir == nil {
		errs = append(errs,
			field.Invalid(path.Child("volumeName"), r.VolumeName, "referenced volume must be of type emptyDir"))
	}
	return errs
}

// validateFieldRef validates a reference to a field of the pod: one of allowed, or one label or annotation,
// such as metadata.labels['app']. The message tells a field label that no pod has from one that is not
// supported here.
func validateFieldRef(r *corev1.ObjectFieldSelector, allowed []string, path *field.Path) field.ErrorList {
	if r.APIVersion == "" {
		return field.ErrorList{field.Required(path.Child("apiVersion"), "")}
	}
	if r.FieldPath == "" {
		return field.ErrorList{field.Required(path.Child("fieldPath"), "")}
	}
	at := path.Child("fieldPath")
	if r.APIVersion != "v1" {
		return field.ErrorList{fieldLabelError(at, r.FieldPath, fmt.Errorf("unsupported pod version: %s", r.APIVersion))}
	}
	name, subscript, subscripted := splitSubscript(r.FieldPath)
	if subscripted && (name == "metadata.annotations" || name == "metadata.labels") {
		key := subscript
		// Annotations may have keys with upper-case letters in the domain, labels may not.
		if name == "metadata.annotations" {
			key = strings.ToLower(subscript)
		}
		return field.Messages(path, subscript, names.IsLabelKey(key))
	}
	switch {
	case subscripted && slices.Contains([]string{"metadata.name"}, name), !slices.Contains(podFieldLabels, name) ||
		subscripted:
		return field.ErrorList{fieldLabelError(at, r.FieldPath, fmt.Errorf("field label not supported: %s", r.FieldPath))}
	case !slices.Contains(allowed, name):
		return field.ErrorList{field.NotSupported(at, name, slices.Sorted(slices.Values(allowed)))}
	}
	return nil
}

// podFieldLabels are all field labels of a pod that kube-apiserver can convert, including
// those that the downward API does not support.
var podFieldLabels = []string{
	"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
	"spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "spec.schedulerName",
	"status.phase", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
}

// splitSubscript splits metadata.labels['app'] into metadata.labels and app. ok is false for a path without a
// subscript.
func splitSubscript(path string) (name, subscript string, ok bool) {
	rest, ok := strings.CutSuffix(path, "']")
	if !ok {
		return path, "", false
	}
	name, subscript, ok = strings.Cut(rest, "['")
	if !ok || name == "" {
		return path, "", false
	}
	return name, subscript, true
}

// resourceFields are the resources that the downward API supports, besides limits.hugepages-SIZE and
// requests.hugepages-SIZE.
var resourceFields = []string{"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu",
	"requests.ephemeral-storage", "requests.memory"}

// validateResourceFieldRef validates a reference to a request or limit of a container. In a file, the container
// must be named: a volume belongs to no container. In an environment variable, it defaults to the container
// that has the variable.
func validateResourceFieldRef(r *corev1.ResourceFieldSelector, path *field.Path, inFile bool) field.ErrorList {
	switch {
	case inFile && r.ContainerName == "":
		return field.ErrorList{field.Required(path.Child("containerName"), "")}
	case r.Resource == "":
		return field.ErrorList{field.Required(path.Child("resource"), "")}
	case strings.HasPrefix(r.Resource, "limits."+corev1.ResourceHugePagesPrefix),
		strings.HasPrefix(r.Resource, "requests."+corev1.ResourceHugePagesPrefix):
	case !slices.Contains(resourceFields, r.Resource):
		return field.ErrorList{field.NotSupported(path.Child("resource"), r.Resource, resourceFields)}
	}
	divisor := r.Divisor.String()
	if r.Divisor.IsZero() {
		return nil
	}
	// The divisor is the unit of the value that the container sees: CPU in cores or thousandths of cores, sizes
	// in bytes or a multiple.
	cpu, sizes := []string{"1m", "1"},
		[]string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	refuse := func(kind string, allowed []string) field.ErrorList {
		if slices.Contains(allowed, divisor) {
			return nil
		}
		return field.ErrorList{
			field.Invalid(path.Child("divisor"), r.Resource,
				fmt.Sprintf("only divisor's values %s are supported with the %s resource", strings.Join(allowed, ", "), kind))}
	}
	switch _, name, _ := strings.Cut(r.Resource, "."); {
	case name == "cpu":
		return refuse("cpu", cpu)
	case name == "memory":
		return refuse("memory", sizes)
	case name == "ephemeral-storage":
		return refuse("local ephemeral storage", sizes)
	default:
		return refuse("hugepages", sizes)
	}
}
