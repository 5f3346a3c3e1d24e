package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// userID accepts 0 to 2147483647.
func userID(path *field.Path, id int64) field.ErrorList {
	return field.Messages(path, id, validation.IsValidUserID(id))
}

// groupID accepts 0 to 2147483647.
func groupID(path *field.Path, id int64) field.ErrorList {
	return field.Messages(path, id, validation.IsValidGroupID(id))
}

// validateSecurityContext validates the security context of a container. A privileged container, and one with
// CAP_SYS_ADMIN, can always gain privileges, so they contradict allowPrivilegeEscalation: false. The capability
// is found by its full name only: SYS_ADMIN, as most manifests write it, is accepted.
func (p *podValidator) validateSecurityContext(c *corev1.SecurityContext, path *field.Path) field.ErrorList {
	if c == nil {
		return nil
	}
	errs := field.Optional(path.Child("runAsUser"), c.RunAsUser, userID)
	errs = append(errs, field.Optional(path.Child("runAsGroup"), c.RunAsGroup, groupID)...)
	// An unmasked /proc is safe only in a user namespace (KEP-4265).
	if m := c.ProcMount; m != nil {
		at := path.Child("procMount")
		errs = append(errs, field.OneOf(at, *m, corev1.DefaultProcMount, corev1.UnmaskedProcMount)...)
		errs = append(errs, field.InvalidIf(p.hostUsers() && *m == corev1.UnmaskedProcMount, at, *m,
			"`hostUsers` must be false to use `Unmasked`")...)
	}
	errs = append(errs, validateSeccomp(c.SeccompProfile, path.Child("seccompProfile"))...)
	errs = append(errs, validateAppArmor(c.AppArmorProfile, path.Child("appArmorProfile"))...)
	if c.AllowPrivilegeEscalation != nil && !*c.AllowPrivilegeEscalation {
		if c.Privileged != nil && *c.Privileged {
			errs = append(errs,
				field.Invalid(path, declare.Internal(c), "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
		}
		if c.Capabilities != nil {
			for _, added := range c.Capabilities.Add {
				if added == "CAP_SYS_ADMIN" && !p.rules.sysAdmin {
					errs = append(errs, field.Invalid(path, declare.Internal(c),
						"cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
				}
			}
		}
	}
	return append(errs, validateWindows(c.WindowsOptions, path.Child("windowsOptions"))...)
}

// validateSeccomp validates a seccomp profile (KEP-135). A local profile is a path below the seccomp folder of
// the kubelet, so it is relative.
func validateSeccomp(s *corev1.SeccompProfile, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := field.RequiredAnd(path.Child("type"), s.Type, "type is required when seccompProfile is set",
		func(at *field.Path, t corev1.SeccompProfileType) field.ErrorList {
			return field.OneOf(at, t, corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault,
				corev1.SeccompProfileTypeUnconfined)
		})
	at := path.Child("localhostProfile")
	switch {
	case s.Type != corev1.SeccompProfileTypeLocalhost && s.LocalhostProfile != nil:
		errs = append(errs, field.Invalid(at, declare.Internal(s), "can only be set when seccomp type is Localhost"))
	case s.Type != corev1.SeccompProfileTypeLocalhost:
	case s.LocalhostProfile == nil:
		errs = append(errs, field.Required(at, "must be set when seccomp type is Localhost"))
	default:
		errs = append(errs, validateLocalPath(at, *s.LocalhostProfile)...)
	}
	return errs
}

// validateAppArmor validates an AppArmor profile (KEP-24). A local profile is the name of one that is loaded on
// the node.
func validateAppArmor(a *corev1.AppArmorProfile, path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	at := path.Child("localhostProfile")
	switch a.Type {
	case "":
		return field.ErrorList{field.Required(path.Child("type"), "type is required when appArmorProfile is set")}
	case corev1.AppArmorProfileTypeLocalhost:
		const most, unset = 4095, "must be set when AppArmor type is Localhost"
		var errs field.ErrorList
		switch p := a.LocalhostProfile; {
		case p == nil || *p == "":
			errs = append(errs, field.Required(at, unset))
		case strings.TrimSpace(*p) != *p:
			errs = append(errs, field.Invalid(at, *p, "must not be padded with whitespace"))
		}
		if p := a.LocalhostProfile; p != nil && len(*p) > most {
			errs = append(errs, field.TooLong(at, *p, most))
		}
		return errs
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if a.LocalhostProfile != nil {
			return field.ErrorList{field.Invalid(at, a.LocalhostProfile, "can only be set when AppArmor type is Localhost")}
		}
	default:
		return field.OneOf(path.Child("type"), a.Type, corev1.AppArmorProfileTypeLocalhost,
			corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
	}
	return nil
}

const windowsLabel = `[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?`

var (
	windowsControl = field.Pattern(`[[:cntrl:]]+`)
	windowsNetBIOS = field.Pattern(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	windowsDNS     = field.Pattern(`^` + windowsLabel + `(?:\.` + windowsLabel + `)*$`)
	windowsUser    = field.Pattern(`^[^"/\\\[\]:;|=,\+\*\?<>@]{1,}$`)
)

// validateWindows validates the options for Windows. An admission webhook copies the content of
// gmsaCredentialSpecName to gmsaCredentialSpec, whose size is limited to 64 KiB.
func validateWindows(o *corev1.WindowsSecurityContextOptions, path *field.Path) field.ErrorList {
	if o == nil {
		return nil
	}
	errs := field.Optional(path.Child("gmsaCredentialSpecName"), o.GMSACredentialSpecName, field.DNSSubdomain)
	if s := o.GMSACredentialSpec; s != nil {
		const kib = 64
		if *s == "" {
			errs = append(errs,
				field.Invalid(path.Child("gmsaCredentialSpec"), *s, "gmsaCredentialSpec cannot be an empty string"))
		} else if len(*s) > kib*1024 {
			errs = append(errs, field.Invalid(path.Child("gmsaCredentialSpec"), *s,
				fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", kib)))
		}
	}
	if u := o.RunAsUserName; u != nil {
		errs = append(errs, field.Messages(path.Child("runAsUserName"), *u, windowsUserProblems(*u))...)
	}
	return errs
}

// windowsUserProblems returns messages for a user name that is not valid. Valid names have the
// format DOMAIN\USER or USER.
func windowsUserProblems(name string) []string {
	const longestDomain, longestUser = 256, 104
	if name == "" {
		return []string{"runAsUserName cannot be an empty string"}
	}
	if windowsControl().MatchString(name) {
		return []string{"runAsUserName cannot contain control characters"}
	}
	domain, user, hasDomain := strings.Cut(name, `\`)
	if strings.Contains(user, `\`) {
		return []string{"runAsUserName cannot contain more than one backslash"}
	}
	if !hasDomain {
		domain, user = "", name
	}
	var problems []string
	if len(domain) >= longestDomain {
		problems = append(problems, fmt.Sprintf("runAsUserName's Domain length must be under %d characters", longestDomain))
	}
	if hasDomain && !windowsNetBIOS().MatchString(domain) && !windowsDNS().MatchString(domain) {
		problems = append(problems, "runAsUserName's Domain doesn't match the NetBios nor the DNS format")
	}
	switch {
	case user == "":
		problems = append(problems, "runAsUserName's User cannot be empty")
	case len(user) > longestUser:
		problems = append(problems,
			fmt.Sprintf("runAsUserName's User length must not be longer than %d characters", longestUser))
	}
	if strings.Trim(user, " .") == "" && user != "" {
		problems = append(problems, `runAsUserName's User cannot contain only periods or spaces`)
	}
	if user != "" && !windowsUser().MatchString(user) {
		problems = append(problems, `runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	}
	return problems
}

// sysctlPattern accepts dots and slashes as separators, such as net.ipv4.ip_forward and net/ipv4/ip_forward.
var sysctlPattern = field.Pattern(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

// validatePodSecurityContext validates the security context of a pod. Settings of a container replace those of
// the pod.
func (p *podValidator) validatePodSecurityContext(c *corev1.PodSecurityContext, path *field.Path) field.ErrorList {
	if c == nil {
		return nil
	}
	errs := field.Optional(path.Child("fsGroup"), c.FSGroup, groupID)
	errs = append(errs, field.Optional(path.Child("runAsUser"), c.RunAsUser, userID)...)
	errs = append(errs, field.Optional(path.Child("runAsGroup"), c.RunAsGroup, groupID)...)
	errs = append(errs, field.EachValue(path.Child("supplementalGroups"), c.SupplementalGroups, groupID)...)
	errs = append(errs, validateSysctls(c.Sysctls, path.Child("sysctls"))...)
	if !p.rules.hostSysctls {
		errs = append(errs, validateHostSysctls(p.spec, path.Child("sysctls"))...)
	}
	errs = append(errs, field.OptionalOneOf(path.Child("fsGroupChangePolicy"), c.FSGroupChangePolicy,
		corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)...)
	errs = append(errs, validateSeccomp(c.SeccompProfile, path.Child("seccompProfile"))...)
	errs = append(errs, validateAppArmor(c.AppArmorProfile, path.Child("appArmorProfile"))...)
	errs = append(errs, field.OptionalOneOf(path.Child("supplementalGroupsPolicy"), c.SupplementalGroupsPolicy,
		corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)...)
	policies := []corev1.PodSELinuxChangePolicy{corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive}
	if p.rules.onlyRecursive {
		policies = policies[1:]
	}
	errs = append(errs, field.OptionalOneOf(path.Child("seLinuxChangePolicy"), c.SELinuxChangePolicy, policies...)...)
	return append(errs, validateWindows(c.WindowsOptions, path.Child("windowsOptions"))...)
}

func validateSysctls(list []corev1.Sysctl, path *field.Path) field.ErrorList {
	const longest = 253
	var errs field.ErrorList
	names := sets.New[string]()
	for i, s := range list {
		at := path.Index(i).Child("name")
		switch {
		case s.Name == "":
			errs = append(errs, field.Required(at, ""))
		case len(s.Name) > longest || !sysctlPattern().MatchString(s.Name):
			errs = append(errs, field.Invalid(at, s.Name,
				fmt.Sprintf("must have at most %d characters and match regex %s", longest, sysctlPattern())))
		case names.Has(s.Name):
			errs = append(errs, field.Duplicate(at, s.Name))
		}
		names.Insert(s.Name)
	}
	return errs
}

// ipcSysctls are the settings of the IPC namespace that have no prefix of their own.
var ipcSysctls = []string{"kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
	"kernel.shm", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.msg"}

// validateHostSysctls forbids settings of namespaces that a pod shares with the host.
// The setting would change the network or the IPC namespace of the whole node. Stored pods may keep such
// settings: see podRules.hostSysctls.
func validateHostSysctls(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	if s.SecurityContext == nil {
		return nil
	}
	var errs field.ErrorList
	for i, setting := range s.SecurityContext.Sysctls {
		at, name := path.Index(i).Child("name"), sysctlName(setting.Name)
		ipc := strings.HasPrefix(name, "fs.mqueue.") || slices.Contains(ipcSysctls, name)
		errs = append(errs, field.InvalidIf(s.HostNetwork && strings.HasPrefix(name, "net."), at, setting.Name,
			"may not be specified when 'hostNetwork' is true")...)
		errs = append(errs, field.InvalidIf(s.HostIPC && ipc, at, setting.Name,
			"may not be specified when 'hostIPC' is true")...)
	}
	return errs
}

// sysctlName returns the name of a setting with dots as separators, up to an asterisk. If the first separator is a slash,
// dots and slashes are exchanged.
// For example, net/ipv4/conf/eth0.100/forwarding is net.ipv4.conf.eth0/100.forwarding: the dot belongs to the
// name of an interface.
func sysctlName(name string) string {
	if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '/' {
		name = strings.NewReplacer(".", "/", "/", ".").Replace(name)
	}
	name, _, _ = strings.Cut(name, "*")
	return name
}

// validateHostPorts requires that host port and container port of containers are equal in the host's network. In a pod
// template the host port may be missing: it is set when the pod is created.
func (p *podValidator) validateHostPorts(path *field.Path) (errs field.ErrorList) {
	if !p.spec.HostNetwork {
		return nil
	}
	for i := range p.spec.Containers {
		for j, port := range p.spec.Containers[i].Ports {
			if port.HostPort == port.ContainerPort || port.HostPort == 0 && !p.pod {
				continue
			}
			at := path.Child("containers").Index(i).Child("ports").Index(j).Child("hostPort")
			errs = append(errs, field.Invalid(at, port.HostPort, "must match `containerPort` when `hostNetwork` is true"))
		}
	}
	return errs
}

// validateHostProcess validates Windows host process containers. All containers of a pod have
// to be host process containers, or none, and the pod has to be in the host's network.
// Such containers run on the host, in its network (KEP-1981).
func (p *podValidator) validateHostProcess(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var ofPod *bool
	if c := p.spec.SecurityContext; c != nil && c.WindowsOptions != nil {
		ofPod = c.WindowsOptions.HostProcess
	}
	have, lack := false, false
	visit := func(name string, i int, c *corev1.SecurityContext) {
		own := ofPod
		if c != nil && c.WindowsOptions != nil && c.WindowsOptions.HostProcess != nil {
			own = c.WindowsOptions.HostProcess
			if ofPod != nil && *own != *ofPod {
				at := path.Child(name).Index(i).Child("securityContext", "windowsOptions", "hostProcess")
				errs = append(errs, field.Invalid(at, *own,
					fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *ofPod)))
			}
		}
		if own != nil && *own {
			have = true
		} else {
			lack = true
		}
	}
	for i := range p.spec.InitContainers {
		visit("initContainers", i, p.spec.InitContainers[i].SecurityContext)
	}
	for i := range p.spec.Containers {
		visit("containers", i, p.spec.Containers[i].SecurityContext)
	}
	for i := range p.spec.EphemeralContainers {
		visit("ephemeralContainers", i, p.spec.EphemeralContainers[i].SecurityContext)
	}
	if !have {
		return errs
	}
	errs = append(errs, field.InvalidIf(lack, path, "",
		"If pod contains any hostProcess containers then all containers must be HostProcess containers")...)
	return append(errs, field.InvalidIf(!p.spec.HostNetwork, path.Child("hostNetwork"), p.spec.HostNetwork,
		"hostNetwork must be true if pod contains any hostProcess containers")...)
}

// eachSecurityContext calls visit for each container that has a security context.
func (p *podValidator) eachSecurityContext(path *field.Path, visit func(*corev1.SecurityContext, *field.Path)) {
	each := func(name string, i int, c *corev1.SecurityContext) {
		if c != nil {
			visit(c, path.Child(name).Index(i).Child("securityContext"))
		}
	}
	for i := range p.spec.Containers {
		each("containers", i, p.spec.Containers[i].SecurityContext)
	}
	for i := range p.spec.InitContainers {
		each("initContainers", i, p.spec.InitContainers[i].SecurityContext)
	}
	for i := range p.spec.EphemeralContainers {
		each("ephemeralContainers", i, p.spec.EphemeralContainers[i].SecurityContext)
	}
}

func (p *podValidator) validateLinux(path *field.Path) field.ErrorList {
	const message = "windows options cannot be set for a linux pod"
	c := p.spec.SecurityContext
	errs := field.ForbiddenIf(c != nil && c.WindowsOptions != nil, path.Child("securityContext", "windowsOptions"), message)
	p.eachSecurityContext(path, func(c *corev1.SecurityContext, at *field.Path) {
		errs = append(errs, field.ForbiddenIf(c.WindowsOptions != nil, at.Child("windowsOptions"), message)...)
	})
	return errs
}

// validateWindowsPod forbids the fields that the API documents as not available if spec.os.name is windows.
func (p *podValidator) validateWindowsPod(path *field.Path) field.ErrorList {
	const message = "cannot be set for a windows pod"
	var errs field.ErrorList
	forbid := func(set bool, at *field.Path) {
		errs = append(errs, field.ForbiddenIf(set, at, message)...)
	}
	at := path.Child("securityContext")
	forbid(p.spec.HostUsers != nil, path.Child("hostUsers"))
	forbid(p.spec.HostPID, path.Child("hostPID"))
	forbid(p.spec.HostIPC, path.Child("hostIPC"))
	forbid(p.spec.ShareProcessNamespace != nil, path.Child("shareProcessNamespace"))
	if c := p.spec.SecurityContext; c != nil {
		forbid(c.AppArmorProfile != nil, at.Child("appArmorProfile"))
		forbid(c.SELinuxOptions != nil, at.Child("seLinuxOptions"))
		forbid(c.SeccompProfile != nil, at.Child("seccompProfile"))
		forbid(c.FSGroup != nil, at.Child("fsGroup"))
		forbid(c.FSGroupChangePolicy != nil, at.Child("fsGroupChangePolicy"))
		forbid(len(c.Sysctls) > 0, at.Child("sysctls"))
		forbid(c.RunAsUser != nil, at.Child("runAsUser"))
		forbid(c.RunAsGroup != nil, at.Child("runAsGroup"))
		forbid(c.SupplementalGroups != nil, at.Child("supplementalGroups"))
		forbid(c.SupplementalGroupsPolicy != nil, at.Child("supplementalGroupsPolicy"))
		forbid(c.SELinuxChangePolicy != nil, at.Child("seLinuxChangePolicy"))
	}
	p.eachSecurityContext(path, func(c *corev1.SecurityContext, at *field.Path) {
		forbid(c.AppArmorProfile != nil, at.Child("appArmorProfile"))
		forbid(c.SELinuxOptions != nil, at.Child("seLinuxOptions"))
		forbid(c.SeccompProfile != nil, at.Child("seccompProfile"))
		forbid(c.Capabilities != nil, at.Child("capabilities"))
		forbid(c.ReadOnlyRootFilesystem != nil, at.Child("readOnlyRootFilesystem"))
		forbid(c.Privileged != nil, at.Child("privileged"))
		forbid(c.AllowPrivilegeEscalation != nil, at.Child("allowPrivilegeEscalation"))
		forbid(c.ProcMount != nil, at.Child("procMount"))
		forbid(c.RunAsUser != nil, at.Child("runAsUser"))
		forbid(c.RunAsGroup != nil, at.Child("runAsGroup"))
	})
	return errs
}
