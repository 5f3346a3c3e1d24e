// Package features parses --feature-gates. It knows all gates of kube-apiserver, so that command lines for
// kube-apiserver are accepted. The server warns of gates that it accepts but that have no effect here.
package features

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/internal/machinery/metrics"
	"github.com/keelson-dev/keelson/internal/machinery/release"
)

// The gates that have an effect.
const (
	// AllowUnsafeMalformedObjectDeletion lets clients delete objects that cannot be read (KEP-3926).
	AllowUnsafeMalformedObjectDeletion = "AllowUnsafeMalformedObjectDeletion"

	CBORServingAndStorage     = "CBORServingAndStorage"     // serves CBOR bodies (KEP-4222)
	SizeBasedListCostEstimate = "SizeBasedListCostEstimate" // seats of lists by bytes instead of objects

	// ExcludeAdmissionWebhookVirtualResources keeps webhooks away from access and token reviews.
	ExcludeAdmissionWebhookVirtualResources = "ExcludeAdmissionWebhookVirtualResources"

	// WatchListCompression compresses the events of watches that begin with the objects that exist.
	WatchListCompression = "WatchListCompression"

	// UnknownVersionInteroperabilityProxy forwards requests to other servers on the same store (KEP-4020).
	UnknownVersionInteroperabilityProxy = "UnknownVersionInteroperabilityProxy"

	// ComponentFlagz and ComponentStatusz serve /flagz and /statusz (KEP-4827, KEP-4828).
	ComponentFlagz   = "ComponentFlagz"
	ComponentStatusz = "ComponentStatusz"

	ConstrainedImpersonation              = "ConstrainedImpersonation"              // more modes of impersonation (KEP-5284)
	ExtendWebSocketsToKubelet             = "ExtendWebSocketsToKubelet"             // kubelets get WebSockets unchanged
	ManifestBasedAdmissionControlConfig   = "ManifestBasedAdmissionControlConfig"   // names of admission objects in files
	MutatingAdmissionPolicy               = "MutatingAdmissionPolicy"               // the plug-in of this name
	WatchCacheInitializationPostStartHook = "WatchCacheInitializationPostStartHook" // the check storage-readiness

	// The gates of resources that are served.
	ClusterTrustBundle     = "ClusterTrustBundle"
	EvictionRequestAPI     = "EvictionRequestAPI"
	GenericWorkload        = "GenericWorkload"
	PodCertificateRequest  = "PodCertificateRequest"
	StorageVersionMigrator = "StorageVersionMigrator"

	// The gates of fields.
	AtomicWriteVolumeUserFields                  = "AtomicWriteVolumeUserFields"
	CSIVolumeHealth                              = "CSIVolumeHealth"
	ClusterTrustBundleProjection                 = "ClusterTrustBundleProjection"
	AuthorizePodWebsocketUpgradeCreatePermission = "AuthorizePodWebsocketUpgradeCreatePermission"
	CSIServiceAccountTokenSecrets                = "CSIServiceAccountTokenSecrets"
	ClearingNominatedNodeNameAfterBinding        = "ClearingNominatedNodeNameAfterBinding"
	ContainerRestartRules                        = "ContainerRestartRules"
	ContainerStopSignals                         = "ContainerStopSignals"
	CoordinatedLeaderElection                    = "CoordinatedLeaderElection"
	CrossNamespaceVolumeDataSource               = "CrossNamespaceVolumeDataSource"
	DRAConsumableCapacity                        = "DRAConsumableCapacity"
	DRADeviceBindingConditions                   = "DRADeviceBindingConditions"
	DRADerivedAttributes                         = "DRADerivedAttributes"
	DRADeviceCompatibilityGroups                 = "DRADeviceCompatibilityGroups"
	DRADeviceTaints                              = "DRADeviceTaints"
	DRAExtendedResource                          = "DRAExtendedResource"
	DRAFractionalCapacityRange                   = "DRAFractionalCapacityRange"
	DRAListTypeAttributes                        = "DRAListTypeAttributes"
	DRANodeAllocatableResources                  = "DRANodeAllocatableResources"
	DRAOptionalNodeOperations                    = "DRAOptionalNodeOperations"
	DRAPartitionableDevices                      = "DRAPartitionableDevices"
	DRAPartitionableDevicesType                  = "DRAPartitionableDevicesType"
	DRAResourceClaimDeviceStatus                 = "DRAResourceClaimDeviceStatus"
	DeploymentReplicaSetTerminatingReplicas      = "DeploymentReplicaSetTerminatingReplicas"
	EmptyDirVolumeMode                           = "EmptyDirVolumeMode"
	EnvFiles                                     = "EnvFiles"
	GRPCContainerProbeTLS                        = "GRPCContainerProbeTLS"
	H2CContainerProbe                            = "H2CContainerProbe"
	HPAConfigurableTolerance                     = "HPAConfigurableTolerance"
	HPAGeneration                                = "HPAGeneration"
	HPAScaleToZero                               = "HPAScaleToZero"
	HostnameOverride                             = "HostnameOverride"
	ImageVolume                                  = "ImageVolume"
	ImageVolumeWithDigest                        = "ImageVolumeWithDigest"
	InPlacePodLevelResourcesVerticalScaling      = "InPlacePodLevelResourcesVerticalScaling"
	MatchLabelKeysInPodTopologySpread            = "MatchLabelKeysInPodTopologySpread"
	MaxUnavailableStatefulSet                    = "MaxUnavailableStatefulSet"
	MutableCSINodeAllocatableCount               = "MutableCSINodeAllocatableCount"
	MutablePVNodeAffinity                        = "MutablePVNodeAffinity"
	MutablePodResourcesForSuspendedJobs          = "MutablePodResourcesForSuspendedJobs"
	MutableSchedulingDirectivesForSuspendedJobs  = "MutableSchedulingDirectivesForSuspendedJobs"
	NodeDeclaredFeatures                         = "NodeDeclaredFeatures"
	PodLevelResources                            = "PodLevelResources"
	ResourceHealthStatus                         = "ResourceHealthStatus"
	ResourceHealthStatusMessage                  = "ResourceHealthStatusMessage"
	StatefulSetRecreateStrategy                  = "StatefulSetRecreateStrategy"
	VolumeBindMountOptions                       = "VolumeBindMountOptions"
	VolumeLimitScaling                           = "VolumeLimitScaling"
	WorkloadWithJob                              = "WorkloadWithJob"
	InPlacePodVerticalScalingInitContainers      = "InPlacePodVerticalScalingInitContainers"
	InPlacePodVerticalScalingMemoryBackedVolumes = "InPlacePodVerticalScalingMemoryBackedVolumes"
	InPlacePodVerticalScalingSchedulerPreemption = "InPlacePodVerticalScalingSchedulerPreemption"
	KubeletInUserNamespace                       = "KubeletInUserNamespace"
	PodDeletionCost                              = "PodDeletionCost"
	PodLevelResourcesFixDefaulting               = "PodLevelResourcesFixDefaulting"
	PodLevelResourcesFixKubeletQOSClass          = "PodLevelResourcesFixKubeletQOSClass"
	PodTopologyLabelsAdmission                   = "PodTopologyLabelsAdmission"
	RelaxedServiceNameValidation                 = "RelaxedServiceNameValidation"
	RestartAllContainersOnContainerExits         = "RestartAllContainersOnContainerExits"
	SELinuxMount                                 = "SELinuxMount"
	SELinuxMountReadWriteOncePod                 = "SELinuxMountReadWriteOncePod"
	ServiceCIDRStatusFieldWiping                 = "ServiceCIDRStatusFieldWiping"
	StrictIPCIDRValidation                       = "StrictIPCIDRValidation"
	TaintTolerationComparisonOperators           = "TaintTolerationComparisonOperators"
	UserNamespacesHostNetworkSupport             = "UserNamespacesHostNetworkSupport"

	// The gates of default roles.
	DRADeviceTaintRules   = "DRADeviceTaintRules"
	DRAResourcePoolStatus = "DRAResourcePoolStatus"

	// The gate of permissions for parts of a status.
	DRAResourceClaimGranularStatusAuthorization = "DRAResourceClaimGranularStatusAuthorization"

	// The gates of fields of pod groups.
	DRAWorkloadResourceClaims       = "DRAWorkloadResourceClaims"
	TopologyAwareWorkloadScheduling = "TopologyAwareWorkloadScheduling"
	CompositePodGroup               = "CompositePodGroup"
	PodGroupPreemptionPolicy        = "PodGroupPreemptionPolicy"
)

// stage is the maturity of a gate.
type stage int

const (
	alpha stage = iota
	beta
	stable
	deprecated
)

// Whether a gate can be set to another value than its default.
const (
	settable = false
	locked   = true
)

// Whether a gate is on by default.
const (
	off = false
	on  = true
)

// row is the state of a gate from the minor since on, until the minor of the next row.
type row struct {
	since            int
	stage            stage
	enabledByDefault bool
	locked           bool
}

// rows has the rows of a gate, the oldest first.
type rows []row

// at returns the state of a gate in a release. known is false if the release does not have the gate yet.
func (ro rows) at(r release.Release) (state row, known bool) {
	for _, row := range ro {
		if row.since <= r.Minor() {
			state, known = row, true
		}
	}
	return state, known
}

const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"

	componentPrefix = "kube:"
)

// rowsOf returns the rows of a gate, nil if there is none of that name.
func rowsOf(name string) rows {
	if found, ok := effective[name]; ok {
		return found
	}
	return ineffective[name]
}

// names returns the names of all gates, sorted.
func names() []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(effective)), maps.Keys(ineffective))
	slices.Sort(all)
	return all
}

// Gates are the feature gates of one server: the defaults of a release, changed by the values on the command line.
// The zero value has all defaults of the newest release.
type Gates struct {
	release release.Release
	set     map[string]bool
}

// Parse parses values of the format A=true,kube:B=false. The last value of a gate counts. It fails, with the
// message of kube-apiserver, for a gate that is unknown, that the release does not have yet, or that is locked to
// another value. It also fails if a gate is on and a gate that it needs is off.
func Parse(values []string, r release.Release) (Gates, error) {
	g := Gates{release: r, set: map[string]bool{}}
	for _, list := range values {
		for item := range strings.SplitSeq(list, ",") {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
			if err := g.parse(strings.TrimPrefix(item, componentPrefix)); err != nil {
				return g, err
			}
		}
	}
	return g, g.checkNeeded()
}

// Release returns the release whose gates these are.
func (g Gates) Release() release.Release { return g.release }

// parse sets one gate from NAME=VALUE.
func (g Gates) parse(item string) error {
	name, value, ok := strings.Cut(item, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !ok {
		return fmt.Errorf("missing bool value for %s", name)
	}
	enable, err := strconv.ParseBool(value)
	if err != nil {
		return fmt.Errorf("invalid value of %s=%s, err: %w", name, value, err)
	}
	h := rowsOf(name)
	if h == nil {
		return fmt.Errorf("unrecognized feature gate: %s", name)
	}
	k, ok := h.at(g.release)
	if !ok {
		return fmt.Errorf("cannot set feature gate %s to %v, feature is PreAlpha at emulated version %s, min compatibility version %s",
			name, enable, g.release, g.release.MinCompatibleText())
	}
	if k.locked && enable != k.enabledByDefault {
		return fmt.Errorf("cannot set feature gate %s to %v, feature is locked to %v", name, enable, k.enabledByDefault)
	}
	g.set[name] = enable
	return nil
}

// checkNeeded returns an error if a gate is on and one that it needs is off.
func (g Gates) checkNeeded() error {
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		var off []string
		for _, other := range needed[name] {
			if !g.Enabled(other) {
				off = append(off, other)
			}
		}
		if g.Enabled(name) && len(off) > 0 {
			return fmt.Errorf("%s is enabled, but depends on features that are disabled: %v", name, off)
		}
	}
	return nil
}

// All returns the gates of the newest release with all alpha and beta gates on, for code that needs every kind and
// version.
func All() Gates { return Gates{set: map[string]bool{allAlpha: true, allBeta: true}} }

// Enabled reports whether a gate is on: by its own value, else by the value of AllAlpha or AllBeta, else by default. It
// is called while a server starts, never for a request.
func (g Gates) Enabled(name string) bool {
	if enabled, ok := g.set[name]; ok {
		return enabled
	}
	k, ok := rowsOf(name).at(g.release)
	if !ok {
		return false
	}
	all := map[stage]string{alpha: allAlpha, beta: allBeta}[k.stage]
	if enabled, ok := g.set[all]; ok && all != "" {
		return enabled
	}
	return k.enabledByDefault && g.release.MinCompatible() >= compatible[name]
}

// WithoutEffect returns the sorted names of the gates that were set and have no effect.
func (g Gates) WithoutEffect() []string {
	var out []string
	for name := range g.set {
		if _, without := ineffective[name]; without {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	return out
}

// States returns the states of all gates that the release has, sorted by name.
func (g Gates) States() []metrics.Feature {
	stages := map[stage]string{alpha: "ALPHA", beta: "BETA", deprecated: "DEPRECATED"}
	var out []metrics.Feature
	for _, name := range names() {
		if k, ok := rowsOf(name).at(g.release); ok {
			out = append(out, metrics.Feature{Name: name, Stage: stages[k.stage], Enabled: g.Enabled(name)})
		}
	}
	return out
}
