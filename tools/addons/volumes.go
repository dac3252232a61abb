package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	provisioner    = "kafkalite.io/local-volumes"
	volumesFolder  = "/var/local-volumes"
	selectedNode   = "volume.kubernetes.io/selected-node" // set by the scheduler: the class waits for the first consumer
	provisionedBy  = "pv.kubernetes.io/provisioned-by"
	volumeNodeName = "kafkalite.io/node"
)

// localVolumes provides folders of its node as volumes: it makes one when the scheduler has chosen the node for a claim,
// lets it grow when the claim does, and removes it when the claim is gone. Sizes are promises: a folder has no limit.
type localVolumes struct {
	node      string
	client    kubernetes.Interface
	informers []cache.SharedIndexInformer
	classes   storagelisters.StorageClassLister
	claims    corelisters.PersistentVolumeClaimLister
	volumes   corelisters.PersistentVolumeLister
}

func newLocalVolumes(node string, client kubernetes.Interface, factory informers.SharedInformerFactory) agent {
	classes := factory.Storage().V1().StorageClasses()
	claims := factory.Core().V1().PersistentVolumeClaims()
	volumes := factory.Core().V1().PersistentVolumes()
	return &localVolumes{
		node: node, client: client,
		informers: []cache.SharedIndexInformer{classes.Informer(), claims.Informer(), volumes.Informer()},
		classes:   classes.Lister(), claims: claims.Lister(), volumes: volumes.Lister(),
	}
}

func (l *localVolumes) watched() []cache.SharedIndexInformer { return l.informers }

func (l *localVolumes) sync(ctx context.Context) error {
	claims, err := l.claims.List(labels.Everything())
	if err != nil {
		return err
	}
	var failures []error
	for _, claim := range claims {
		if claim.Spec.VolumeName == "" {
			err = l.provide(ctx, claim)
		} else {
			err = l.grow(ctx, claim)
		}
		failures = append(failures, about(claim.Namespace+"/"+claim.Name, err))
	}
	volumes, err := l.volumes.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, volume := range volumes {
		if l.isOurs(volume) && volume.Status.Phase == corev1.VolumeReleased {
			failures = append(failures, about(volume.Name, l.remove(ctx, volume)))
		}
	}
	return errors.Join(failures...)
}

func about(what string, err error) error {
	// Somebody was faster than our cache; the next look sees it.
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (l *localVolumes) isOurs(volume *corev1.PersistentVolume) bool {
	return volume.Annotations[provisionedBy] == provisioner && volume.Labels[volumeNodeName] == l.node
}

func (l *localVolumes) provide(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.Spec.StorageClassName == nil || claim.Annotations[selectedNode] != l.node || claim.DeletionTimestamp != nil {
		return nil
	}
	class, err := l.classes.Get(*claim.Spec.StorageClassName)
	if err != nil || class.Provisioner != provisioner {
		return err
	}
	name := "pvc-" + string(claim.UID)
	folder := filepath.Join(volumesFolder, name)
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(folder, 0o777); err != nil { // whatever the umask; pods without a fsGroup write too
		return err
	}
	here := corev1.NodeSelectorRequirement{
		Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{l.node},
	}
	_, err = l.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{volumeNodeName: l.node},
			Annotations: map[string]string{provisionedBy: provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: *claim.Spec.Resources.Requests.Storage()},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: *class.ReclaimPolicy,
			StorageClassName:              class.Name,
			VolumeMode:                    claim.Spec.VolumeMode,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: folder}},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{here}}},
			}},
		},
	}, metav1.CreateOptions{})
	if err == nil {
		log.Printf("made %s for %s/%s", name, claim.Namespace, claim.Name)
	}
	return err
}

// grow does what a resizer does for a file system that grows by itself: first the volume, then the claim's status.
func (l *localVolumes) grow(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	volume, err := l.volumes.Get(claim.Spec.VolumeName)
	if err != nil || !l.isOurs(volume) || claim.Status.Phase != corev1.ClaimBound {
		return err
	}
	wanted := *claim.Spec.Resources.Requests.Storage()
	if wanted.Cmp(*volume.Spec.Capacity.Storage()) > 0 {
		volume = volume.DeepCopy()
		volume.Spec.Capacity[corev1.ResourceStorage] = wanted
		if _, err := l.client.CoreV1().PersistentVolumes().Update(ctx, volume, metav1.UpdateOptions{}); err != nil {
			return err
		}
		log.Printf("%s of %s/%s grows to %s", volume.Name, claim.Namespace, claim.Name, wanted.String())
	}
	if wanted.Cmp(*claim.Status.Capacity.Storage()) <= 0 {
		return nil
	}
	claim = claim.DeepCopy()
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: wanted}
	_, err = l.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}

func (l *localVolumes) remove(ctx context.Context, volume *corev1.PersistentVolume) error {
	if volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(volumesFolder, volume.Name)); err != nil {
		return err
	}
	err := l.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
	if err == nil {
		log.Printf("removed %s", volume.Name)
	}
	return err
}
