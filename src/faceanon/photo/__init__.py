"""What looks at photographs: the detector and the mesh that ship in `checkpoints/photo_seers`."""
